"""Where the compiled part of the flow core is missing, the import says how to build it."""

from __future__ import annotations

import subprocess
import sys

# None in sys.modules is Python's own way to say that there is no such module.
WITHOUT_NATIVE = """
import sys
sys.modules["headgate.flow._native"] = None
import headgate.flow
"""


def test_the_import_says_how_to_build() -> None:
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_NATIVE], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    message = process.stderr.splitlines()[-1]
    assert message.startswith("ImportError: headgate.flow cannot load its compiled part")
    assert "`make install`" in message
    assert "`pip install .` with a C++20 compiler" in message
