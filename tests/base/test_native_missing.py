"""An import whose compiled part is missing reports how to build it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# None in sys.modules makes Python report that there is no such module.
WITHOUT_NATIVE = """
import sys
sys.modules["{package}._native"] = None
import {package}
"""


@pytest.mark.parametrize("package", ["headgate.base", "headgate.planning", "headgate.flow"])
def test_import_error_names_the_build_command_when_native_part_is_missing(package: str) -> None:
    code = WITHOUT_NATIVE.format(package=package)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    message = process.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: {package} cannot load its compiled part")
    assert "`make install`" in message
    assert "`pip install .` with a C++20 compiler" in message
