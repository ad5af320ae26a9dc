"""Errors that a user can act on, their exit codes, and the wording that messages share."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

#: Errors of the system that mean: no room for the output.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MacaronError(Exception):
    """Something in the input is wrong. The message names it and the remedy; the command prints it and exits."""

    exit_code = 1


class UsageError(MacaronError):
    """The command was called wrongly."""

    exit_code = 2


class Interrupted(MacaronError):
    """The run was stopped by a signal, in good order."""

    exit_code = 130


class ProcessLost(MacaronError):
    """Another process of the same run has ended. Only that process knows the reason."""


def require(condition: bool, message: str) -> None:
    """Raise MacaronError unless a condition holds."""
    if not condition:
        raise MacaronError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` if a known name is similar, otherwise the list of known names."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def unknown(kind: str, name: str, known: Iterable[str]) -> MacaronError:
    """The error for a name that is not among the known ones. It suggests the nearest names, or lists all."""
    choices = list(known)
    near = get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(choices)}"
    return MacaronError(f"unknown {kind} {name!r}: {hint}")


def cannot_write(path: Path, error: OSError) -> MacaronError:
    """The error for a failed write; it names the path as the user gave it."""
    remedy = "Free some space." if error.errno in FULL else "Choose another path."
    return MacaronError(f"{path} cannot be written: {error.strerror or error}. {remedy}")


def system_message(error: OSError) -> str:
    """The message for an error of the system that nothing has caught, such as a missing file.

    The OS names the file only if opening fails; a nameless write error is about the output.
    """
    full = error.errno in (*FULL, errno.EBADF)
    name = f"{error.filename}: " if error.filename else "cannot write the output: " if full else ""
    return f"{name}{error.strerror or error}"
