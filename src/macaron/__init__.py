"""Macaron: Transformers as splitting schemes of a multi-particle system.

``import macaron`` is light: torch and transformers are imported when something needs them. It leaves the Auto
classes of transformers able to read Macaron's model folders, whichever of the two is imported first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from macaron._registration import register_when_imported

if TYPE_CHECKING:
    from macaron.nn.compat import MacaronDecoderLayer as MacaronDecoderLayer
    from macaron.nn.compat import MacaronEncoderLayer as MacaronEncoderLayer
    from macaron.ode import Scheme as Scheme
    from macaron.ode import scheme as scheme

__version__ = "0.1.0"

_HOME = {
    "Scheme": "macaron.ode",
    "scheme": "macaron.ode",
    "MacaronEncoderLayer": "macaron.nn.compat",
    "MacaronDecoderLayer": "macaron.nn.compat",
}
__all__ = ["MacaronDecoderLayer", "MacaronEncoderLayer", "Scheme", "__version__", "scheme"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'macaron' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_when_imported()
