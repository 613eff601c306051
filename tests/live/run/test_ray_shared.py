"""The driver of a shared Ray program, where it ends before it connects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ray

from headgate.live.run import ray_shared


def test_program_with_another_ray_than_the_cluster_is_rejected(tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text(json.dumps({"versions": {"Ray": "2.40.0"}}))
    done = subprocess.run(
        [sys.executable, ray_shared.__file__, str(settings)],
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert f"has Ray {ray.__version__}, and the Ray cluster has 2.40.0" in done.stderr
    assert "Traceback" not in done.stderr
