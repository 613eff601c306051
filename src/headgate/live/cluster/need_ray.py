"""What needs Ray, which is an extra of the package."""

from __future__ import annotations

import sys
from importlib import util

from headgate.base.errors import Problem, WorldError


def need_ray() -> None:
    """Raise WorldError, with what to install, where Ray is missing."""
    if util.find_spec("ray") is None:
        text = f"Ray is not installed for {sys.executable}; only simulations run without it"
        hint = f"{sys.executable} -m pip install 'headgate[live]'"
        raise WorldError([Problem(path="", problem=text, hint=hint)])
