"""The command line as a process of its own, for tests that interrupt it; and all its verbs."""

from __future__ import annotations

import os
import pwd
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from typer.main import get_command

from headgate.cli.verbs import app

ME = pwd.getpwuid(os.getuid()).pw_name
PROGRAM = [sys.executable, "-c", "from headgate.cli.main import main; main()"]


def cells(text: str) -> list[list[str]]:
    """Return the cells of printed tables."""
    return [re.split(" {2,}", line.strip()) for line in text.splitlines()]


def until(truth: Callable[[], Any]) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := truth():
            return found
        time.sleep(0.02)
    raise AssertionError("the condition was false for 30 s")


def _verbs(command: Any, *before: str) -> Iterator[str]:
    context = command.make_context("headgate", [], resilient_parsing=True)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if hasattr(found, "list_commands"):
            yield from _verbs(found, *before, name)
        else:
            yield " ".join((*before, name))


VERBS = tuple(_verbs(get_command(app)))
"""Every verb of the program, those of groups as `data put`."""
