"""The program `headgate`: reports every error, and handles signals and streams."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import typer

from headgate.base.errors import HeadgateError
from headgate.cli.common import errors, output
from headgate.cli.common.settings import Format, settle


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error is printed as text or JSON."""
    try:
        errors.need_no_empty(arguments)
        from headgate.cli.verbs import app  # slow; Ctrl-C may arrive meanwhile

        code = app(args=list(arguments), prog_name="headgate", standalone_mode=False)
        output.flush()
        if code == errors.INTERRUPTED:
            raise errors.interrupted()
    except HeadgateError as error:
        return _report(error, arguments)
    except typer.TyperException as error:
        return _report(_misused(error, arguments), arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _report(errors.interrupted(), arguments)
    except output.PipeClosed:
        return errors.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  # never a traceback to a user
        return _report(errors.unexpected(error), arguments)
    return code if isinstance(code, int) else errors.OK


def _misused(error: typer.TyperException, arguments: Sequence[str]) -> HeadgateError:
    from headgate.cli.usage import misused

    return misused(error, arguments)


def _report(error: HeadgateError, arguments: Sequence[str]) -> int:
    requested = errors.requested_format(arguments)
    if requested is None:
        try:
            requested = settle(None, None).format
        except (HeadgateError, OSError):
            requested = Format.TABLE  # errors of the settings are reported as text
    try:
        return errors.report(error, as_json=requested == Format.JSON)
    except OSError:
        return errors.exit_code_of(error)  # stderr cannot be written


def main() -> None:
    """Run the program's command line."""
    _open_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end)
    code = run(sys.argv[1:])
    _drop_unwritten()
    sys.exit(code)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End as after Ctrl-C: unfinished work is rolled back."""
    raise SystemExit(128 + number)


def _open_streams() -> None:
    """Open closed streams on /dev/null; escape characters that an encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_unwritten() -> None:
    """Discard unwritten output, so that the interpreter does not retry it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
