"""Where settings came from, for messages: a line of a file, ``--set``, or an option.

Whoever refuses a setting names it as the recipe does (``train.seed``). The message gets its origin here.
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from macaron.errors import MacaronError, cut

F = TypeVar("F", bound=Callable[..., Any])
#: The path of a value: names of sections and keys, and indices of lists.
KeyPath = tuple[str | int, ...]
#: Lines times characters of a text in which the line of a key is looked for (a second or two).
_LONGEST_SEARCH = 1 << 22
#: A setting as messages name it.
_KEY = re.compile(r"(?<![\w./-])[a-z]+(?:\.[a-z]\w*|\[\d+\])+")


@dataclasses.dataclass(frozen=True)
class Origin:
    """The source of some settings: a file and its text, the ``key.key=value`` that were applied to it.

    :param options: settings that options of their own gave: ``{"data.vocab_size": "--vocab-size 8000"}``
    """

    name: str = ""
    text: str = ""
    assignments: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Where a value was given: ``FILE, line N``, ``--set KEY=VALUE`` or an option; empty if it was not."""
        if not path:
            return ""
        line = self._line(path)
        for text in reversed(self.assignments):
            key = tuple(text.partition("=")[0].strip().split("."))
            alone = line is None and key[: len(path)] == path  # the section was created by this assignment
            if alone or path[: len(key)] == key:
                return f"--set {cut(text, 500)}"
        option = self.options.get(dotted(path))
        return option or ("" if line is None else f"{self.name}, line {line}")

    def prefix(self, *paths: KeyPath) -> str:
        """The beginning of a message about values: where they were given, or the file if they were not."""
        places = dict.fromkeys(filter(None, map(self.place, paths)))
        where = "; ".join(places) or self.name
        return f"{where}: " if where else ""

    @contextmanager
    def located(self) -> Iterator[None]:
        """A context in which messages begin with where the first setting that they name (``train.seed``) was given."""
        try:
            yield
        except MacaronError as error:
            message = str(error)
            named = (re.findall(r"\w+", key) for key in _KEY.findall(message))
            paths = (tuple(int(part) if part.isdigit() else part for part in parts) for parts in named)
            place = next(filter(None, map(self.place, paths)), "")
            if not message.startswith(place):
                error.args = (f"{place}: {message}", *error.args[1:])
            raise

    def _line(self, path: KeyPath) -> int | None:
        """The line of a key, from 1. The text is parsed up to line 1, 2, ...: whatever adds the value holds its key."""
        lines = self.text.split("\n")
        if len(lines) * len(self.text) > _LONGEST_SEARCH:
            return None
        name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
        start = 0
        for end in range(1, len(lines) + 1):
            try:
                value: Any = tomllib.loads("\n".join(lines[:end]))
                for part in path:
                    value = value[part]
            except (tomllib.TOMLDecodeError, LookupError, TypeError) as error:
                start = start if isinstance(error, tomllib.TOMLDecodeError) else end
                continue
            word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
            return next((number + 1 for number in range(start, end) if word.search(lines[number])), end)
        return None


def located(function: F) -> F:
    """Wrap a function of a recipe: its messages about a setting begin with where the setting was given."""

    @wraps(function)
    def call(recipe: Any, *args: Any, **kwargs: Any) -> Any:
        with recipe.origin.located():
            return function(recipe, *args, **kwargs)

    return cast(F, call)


def dotted(path: KeyPath) -> str:
    """A path as a message has it: ``data.train[0].path``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
