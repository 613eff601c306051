"""Where a compiled part is missing, the import says how to build it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# None in sys.modules is Python's own way to say that there is no such module.
WITHOUT_NATIVE = """
import sys
sys.modules["{package}._native"] = None
import {package}
"""


@pytest.mark.parametrize("package", ["headgate.base", "headgate.planning", "headgate.flow"])
def test_the_import_says_how_to_build(package: str) -> None:
    code = WITHOUT_NATIVE.format(package=package)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    message = process.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: {package} cannot load its compiled part")
    assert "`make install`" in message
    assert "`pip install .` with a C++20 compiler" in message
