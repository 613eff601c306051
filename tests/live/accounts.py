"""Other users of this machine for tests of root, and an interpreter that they can run."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

import headgate
from headgate.live.base import account
from headgate.live.cluster.packet_filter import Shield, remove_shield, set_shield
from headgate.live.cluster.ray_ports import PortBlock

USER, OTHER = "daemon", "nobody"

root_only = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as other users"),
]


def _why_no_filter() -> str:
    mine = Shield(ports=[PortBlock(first=1, last=1)], owner=os.getpid(), name="try")
    problem = set_shield(mine)
    remove_shield(mine)
    return problem


needs_filter = [
    *root_only,
    pytest.mark.skipif(bool(_why_no_filter()), reason=f"no packet filter: {_why_no_filter()}"),
]


@functools.cache
def _venv() -> tuple[str, str]:
    """Return the Python of a new environment for all users, or why there is none."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    system = shutil.which(name, path="/usr/bin")
    if system is None:
        return "", f"there is no {name} of the system"
    place = Path(tempfile.mkdtemp(prefix="hg-python-", dir="/tmp"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    made = [system, "-m", "venv", "--without-pip", str(place / "venv")]
    done = subprocess.run(made, check=False, capture_output=True, text=True, umask=0o022)
    if done.returncode:
        return "", done.stdout + done.stderr
    (packages,) = (place / "venv").glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    lines = [str(Path(headgate.__file__).parents[1]), f"import site; site.addsitedir({ours!r})"]
    found = packages / "headgate-test.pth"
    found.write_text("\n".join(lines) + "\n")
    found.chmod(0o644)
    return str(place / "venv" / "bin" / "python"), ""


def python_for_all() -> str:
    """Return a Python with Headgate that any user can run; skip where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        other = account.account_for(OTHER)
        problem = account.why_unusable(other)
        if problem:
            python, problem = _venv()
            if python:
                patch.setattr(account, "INTERPRETER", python)
                problem = account.why_unusable(other)
        if problem:
            pytest.skip(f"no Python with Headgate that other users can run: {problem}")
        return account.INTERPRETER


@pytest.fixture
def readable_python(monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python that any user can run, which tasks of executors in this process get."""
    monkeypatch.setattr(account, "INTERPRETER", python_for_all())
    return account.INTERPRETER
