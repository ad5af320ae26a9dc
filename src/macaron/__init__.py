"""Macaron: Transformers as splitting schemes of a multi-particle system.

``import macaron`` is light: torch and transformers are imported when something needs them. It leaves the Auto
classes of transformers able to read Macaron's model folders, whichever of the two is imported first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from macaron.huggingface.registration import register_when_imported

if TYPE_CHECKING:
    from macaron.decode import Translator as Translator
    from macaron.models import preset as preset
    from macaron.ode import Scheme as Scheme
    from macaron.ode import scheme as scheme

__version__ = "0.1.0"

_HOME = {"Scheme": "ode", "Translator": "decode", "preset": "models", "scheme": "ode"}
_ROOMS = [
    "convert",
    "data",
    "decode",
    "evaluate",
    "huggingface",
    "lab",
    "models",
    "nn",
    "ode",
    "tasks",
    "text",
    "train",
]
__all__ = ["Scheme", "Translator", "__version__", "preset", "scheme"]


def __getattr__(name: str) -> Any:
    if name not in (*_HOME, *_ROOMS):
        raise AttributeError(f"module 'macaron' has no attribute {name!r}")
    room = import_module(f"macaron.{_HOME.get(name, name)}")
    return getattr(room, name) if name in _HOME else room


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])


register_when_imported()
