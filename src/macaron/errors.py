"""Errors that a user can act on."""

from collections.abc import Iterable
from difflib import get_close_matches


class MacaronError(Exception):
    """Something in the input is wrong: the message names it and the remedy. The command prints it and exits 1."""


class UsageError(MacaronError):
    """The command was called wrongly; exits 2."""


class Interrupted(MacaronError):
    """A person or the system asked us to stop, and we did; exits 130."""


class ProcessLost(MacaronError):
    """Another process of the same run has ended; why, only that one can say."""


def unknown(kind: str, name: str, known: Iterable[str]) -> MacaronError:
    """The error for a name that is not among the known ones. It suggests the nearest names, or lists all."""
    choices = list(known)
    near = get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(choices)}"
    return MacaronError(f"unknown {kind} {name!r}: {hint}")
