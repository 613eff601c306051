"""Old names of modules that moved: they can be imported for one release, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def moved_modules(moved: Mapping[str, Sequence[str]]) -> None:
    """Let old modules be imported that others now contain, by full name; each import warns once.

    They are made on import, and look their names up in the others, in this order.
    """
    sys.meta_path.append(_Moved(moved))


def names_of(old: str, modules: Sequence[str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of an old module whose names are now in others, which warns."""

    def find(name: str) -> Any:
        for module in [] if name.startswith("__") else map(import_module, modules):
            if hasattr(module, name):
                _warn(f"{old}.{name}", f"{module.__name__}.{name}")
                return getattr(module, name)
        raise AttributeError(f"module {old!r} has no attribute {name!r}")

    return find


def _warn(old: str, new: str) -> None:
    text = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


class _Moved(MetaPathFinder, Loader):
    """Finds modules by their old names, after all others."""

    def __init__(self, moved: Mapping[str, Sequence[str]]) -> None:
        self._moved = moved

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an old module."""
        del path, target
        return ModuleSpec(fullname, self, is_package=True) if fullname in self._moved else None

    def exec_module(self, module: ModuleType) -> None:
        """Give an old module the names of those that contain them now."""
        module.__dict__["__getattr__"] = names_of(module.__name__, self._moved[module.__name__])
