"""Words for messages: names that are not known, and values of any size."""

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import repr as short
from typing import Any

from macaron.errors import MacaronError


def unknown(kind: str, name: str, known: Iterable[str]) -> MacaronError:
    """The error for a ``name`` that is not among the ``known`` ones: it offers the nearest, or else all."""
    choices = list(known)
    near = get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(choices)}"
    return MacaronError(f"unknown {kind} {name!r}: {hint}")


def shown(value: Any) -> str:
    """A value for a message: short, and without an error of its own (an integer of 5000 digits has no repr)."""
    try:
        return short(value)
    except (ValueError, RecursionError):
        return f"{type(value).__name__} too large to show"
