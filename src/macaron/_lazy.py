"""Packages whose names are imported when they are first used, so that importing the package stays cheap."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(package: str, **homes: list[str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, which takes these names from each of its modules."""
    modules = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get
