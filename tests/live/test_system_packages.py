"""A directory beside the job file travels to the nodes, with a Python environment made there."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.system import Headgate

from headgate.api.packing import package_of

pytestmark = pytest.mark.live
WHEEL = "hgtest-1.0-py3-none-any.whl"
FACTS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
TRAIN = "import hgtest, os, util\nprint(util.NAME, hgtest.SAYS, os.environ['NODE_RANK'])\n"


@pytest.fixture(scope="module")
def headgate() -> Iterator[Headgate]:
    with Headgate(nodes=2, gpus=1, up=("--probe-period=0",)) as headgate:
        yield headgate


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "util.py").write_text("NAME = 'mine'\n")
    (tmp_path / "job.yaml").write_text(
        f"{{name: train, num_nodes: 2, run: python train.py, pip: [./{WHEEL}]}}"
    )
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("hgtest.py", "SAYS = 'installed'\n")
        about = "hgtest-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: hgtest\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", FACTS)
        wheel.writestr(f"{about}/RECORD", "")
    return tmp_path


def test_files_and_requirements_travel_to_both_nodes_once_and_survive_the_controller(
    headgate: Headgate, project: Path
) -> None:
    job = str(project / "job.yaml")
    first = headgate.call("submit", job)["id"]
    headgate.ends(first)
    logs = [headgate.client.log(first, task, attempt=None, offset=0)["text"] for task in (0, 1)]
    assert ["making the Python environment" in log for log in logs] == [True, True]
    assert [log.splitlines()[-1] for log in logs] == ["mine installed 0", "mine installed 1"]

    headgate.kill_controller()
    headgate.up()
    assert headgate.client.has_package(package_of(project).digest())
    again = headgate.call("submit", job)["id"]
    headgate.ends(again)
    log = headgate.client.log(again, 1, attempt=None, offset=0)["text"]
    assert log.splitlines() == ["mine installed 1"]

    (project / "util.py").write_text("NAME = 'changed'\n")  # fetched from the new controller
    (project / "job.yaml").write_text("{name: plain, run: 'cat util.py > {output}'}")
    plain = headgate.call("submit", job)["id"]
    headgate.ends(plain)
    assert headgate.result(plain) == b"NAME = 'changed'\n"


def test_pip_that_fails_fails_the_job_with_its_end(headgate: Headgate, project: Path) -> None:
    text = "{name: broken, run: python train.py, pip: [./missing.whl]}"
    (project / "job.yaml").write_text(text)
    job = headgate.call("submit", str(project / "job.yaml"))["id"]
    message = headgate.ends(job, "failed")["message"]
    assert "its environment could not be prepared" in message
    assert "missing.whl" in message
