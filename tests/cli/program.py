"""The command line as a process of its own, for tests that interrupt it."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Callable
from typing import Any

ME = pwd.getpwuid(os.getuid()).pw_name
PROGRAM = [sys.executable, "-c", "from headgate.cli.main import main; main()"]


def until(truth: Callable[[], Any]) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := truth():
            return found
        time.sleep(0.02)
    raise AssertionError("the condition was false for 30 s")
