"""Joining a Ray cluster: its address, and its token where it requires one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headgate.base.errors import Problem, SpecError

_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_KEPT = "joined-token"

REFUSED = "InvalidAuthToken"
"""Ray's log message for a wrong or missing token; its exceptions do not contain the reason."""


def check(address: str | None, token_file: Path | None, shape: Iterable[str]) -> None:
    """Raise SpecError `usage` with all problems of the options of `up` about joining.

    `shape` names the options about virtual nodes that were given.
    """
    wrong = []
    if address is not None:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[2]) <= 65535:
            hint = "such as 10.0.0.5:6379"
            wrong.append(("--address", f"'{address}' is not HOST:PORT", hint))
        for option in shape:
            text = "applies to virtual nodes; --address starts none"
            wrong.append((f"--{option.replace('_', '-')}", text, ""))
    elif token_file is not None:
        wrong.append(("--token-file", "requires --address", ""))
    problems = [Problem(path=path, problem=text, hint=hint) for path, text, hint in wrong]
    if token_file is not None:
        problems += _unusable(token_file, "--token-file")
    if problems:
        raise SpecError(problems, code="usage")


def token(
    state: Path, token_file: Path | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the path of the token for joining, None without one.

    Unless given, it is the one that Ray itself would find: `RAY_AUTH_TOKEN` (stored in `state` for
    later controllers), `RAY_AUTH_TOKEN_PATH`, `~/.ray/auth_token`. Raises SpecError for one that
    cannot be read, and for a missing one where `RAY_AUTH_MODE` requires one.
    """
    if token_file is not None:
        return str(token_file.absolute())
    mode = environment.get("RAY_AUTH_MODE", "").lower()
    if mode not in ("", "token"):
        return None
    if environment.get("RAY_AUTH_TOKEN"):
        return str(_kept(state, environment["RAY_AUTH_TOKEN"]))
    home = Path(environment.get("HOME") or "/") / ".ray" / "auth_token"
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    if named or home.exists():
        source = "RAY_AUTH_TOKEN_PATH" if named else str(home)
        path = Path(named).expanduser() if named else home
        if problems := _unusable(path, source):
            raise SpecError(problems, code="usage")
        return str(path.absolute())
    if mode:
        text = "RAY_AUTH_MODE requires a token, and there is none"
        hint = "give the cluster's token with --token-file FILE"
        raise SpecError([Problem(path="--token-file", problem=text, hint=hint)], code="usage")
    return None


def refused(address: str, token: str | None) -> SpecError:
    """Return the error for a cluster that rejected the token, or required one."""
    text = f"the Ray cluster at {address} "
    text += "requires a token" if token is None else f"rejects the token in {token}"
    hint = "give the cluster's token with --token-file FILE"
    return SpecError([Problem(path="--token-file", problem=text, hint=hint)], code="usage")


def _unusable(path: Path, source: str) -> list[Problem]:
    try:
        text = "" if path.read_bytes().strip() else f"{path} is empty"
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
    return [Problem(path=source, problem=text)] if text else []


def _kept(state: Path, secret: str) -> Path:
    path = state.absolute() / _KEPT
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)
    return path
