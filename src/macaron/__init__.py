"""Macaron: Transformers as splitting schemes of a multi-particle system.

``import macaron`` is light: torch and transformers are imported when something needs them. It leaves the Auto
classes of transformers able to read Macaron's model folders, whichever of the two is imported first.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.decode import Translator as Translator
    from macaron.decode.generator import Generator as Generator
    from macaron.models import preset as preset
    from macaron.ode import Scheme as Scheme
    from macaron.ode import scheme as scheme
    from macaron.tasks.embedder import Embedder as Embedder

__version__ = "0.1.0"

_ROOMS = (
    *("convert", "data", "decode", "evaluate", "huggingface", "lab", "models", "nn", "ode", "tasks", "text", "train"),
)
__all__ = ["Embedder", "Generator", "Scheme", "Translator", "__version__", "preset", "scheme"]


def lazy(package: str, file: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that imports its names when they are first used: those for type checkers.

    Their imports are read from its file, one a line.
    """

    @cache
    def modules() -> dict[str, str]:
        imports = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)
        return {name: module for module, name in imports.findall(Path(file).read_text("utf-8"))}

    def get(name: str) -> Any:
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules()[name]), name)

    return get


_name = lazy(__name__, __file__)


def __getattr__(name: str) -> Any:
    return import_module(f"macaron.{name}") if name in _ROOMS else _name(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])


# The packages need `lazy`, so this comes last.
from macaron.huggingface import register_when_imported  # noqa: E402

register_when_imported()
