"""The only reader of JSON: limits against damaged and hostile files, and a check of every key and type.

What a file must hold is a type, see `settings.convert`. A key that earlier versions did not write is `NotRequired`.
"""

import errno
import json
from pathlib import Path
from typing import Annotated, Any

from macaron.errors import MacaronError
from macaron.limits import LARGEST_JSON, Between, check_limits, read_limited, why
from macaron.settings import Origin, convert

#: The number of something that is stored.
Count = Annotated[int, Between(0, 2**53)]
#: A time, a loss or a score.
Real = Annotated[float, Between(-1e300, 1e300)]
#: Any object.
Record = dict[str, Any]


def read_json(path: Path, kind: Any, remedy: str = "", largest: int = LARGEST_JSON, finite: bool = True) -> Any:
    """The content of a JSON file, of this type. FileNotFoundError passes; all else is a MacaronError with the file."""
    try:
        if path.is_fifo():  # nobody would write into it
            raise OSError(errno.ESPIPE, "a pipe, not a file")
        text = read_limited(path, largest)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise _damaged(path, error, remedy) from None
    return parse_json(text, path, kind, remedy, finite)


def parse_json(text: str, name: str | Path, kind: Any, remedy: str = "", finite: bool = True) -> Any:
    """The same for a text."""
    try:
        content = json.loads(text, object_pairs_hook=_without_duplicates)
        check_limits(content, finite)
    # Not JSON, beyond the limits, or nested deeper than Python's own limit.
    except (ValueError, RecursionError) as error:
        raise _damaged(name, error, remedy) from None
    return conforming(kind, content, name, remedy)


def conforming(kind: Any, content: Any, name: str | Path, remedy: str = "") -> Any:
    """The content of a file, of this type."""
    try:
        return convert(kind, content, Origin(str(name)), ())
    except MacaronError as error:
        raise MacaronError(f"{error}{remedy and f'. {remedy}'}") from None


def _damaged(name: str | Path, error: ValueError | RecursionError, remedy: str) -> MacaronError:
    return MacaronError(f"{name}: not valid JSON ({why(error)}){remedy and f'. {remedy}'}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> Record:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is there twice")
    return content
