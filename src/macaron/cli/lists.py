"""Lists of numbers on the command line."""

from collections.abc import Callable
from typing import TypeVar

from macaron.errors import UsageError

Number = TypeVar("Number", int, float)


def numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """The numbers of ``16,32``; none where nothing is given."""
    if text is None:
        return ()
    try:
        found = tuple(dict.fromkeys(kind(part.strip()) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"{option} takes a number, or several separated by commas, not {text!r}") from None
    return found
