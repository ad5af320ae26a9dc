"""What to say when a name is not known."""

from collections.abc import Iterable
from difflib import get_close_matches

from macaron.errors import MacaronError


def unknown(kind: str, name: str, known: Iterable[str]) -> MacaronError:
    """The error for a ``name`` that is not among the ``known`` ones: it offers the nearest, or else all."""
    choices = list(known)
    near = get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(choices)}"
    return MacaronError(f"unknown {kind} {name!r}: {hint}")
