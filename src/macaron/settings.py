"""Strict settings: TOML into frozen dataclasses and back, dotted overrides. An unknown key is refused with its line.

Whoever refuses a setting names it as the recipe does (``train.seed``). The message gets its origin here: a line of a
file, ``--set``, or an option.
"""

import copy
import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from macaron.errors import MacaronError, cut, nearest, shown
from macaron.limits import DEEPEST, LARGEST_TOML, LONGEST_NAME, MOST_ITEMS, Between, check_limits, read_limited, why

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
#: Types in messages.
_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    Path: "a path",
    tuple: "a list",
    list: "a list",
    dict: "a section",
}
#: Keys of too many parts: tomllib takes memory by the square of their number.
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST}}}""")
#: Keys that are not named are kept as they are: ``Annotated[SomeTypedDict, OTHERS]``.
OTHERS = "others"
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


def load_toml(path: Path, assignments: Sequence[str] = ()) -> tuple[dict[str, Any], Origin]:
    """The contents of a TOML file with ``key.key=value`` assignments applied, and their origin."""
    try:
        text = read_limited(path, LARGEST_TOML)
        content = _parsed(text)
    except (ValueError, RecursionError) as error:
        raise MacaronError(f"{path}: not valid TOML: {why(error)}") from error
    return override(content, assignments), Origin(str(path), text, tuple(assignments))


def _parsed(text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise RecursionError
    content = tomllib.loads(text)
    check_limits(content, items=MOST_ITEMS)
    return content


def override(data: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``key.key=value`` assignments; values are TOML (a bare word is taken as a string), nothing unsets a key."""
    changed = copy.deepcopy(dict(data))
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise MacaronError(f"cannot read the setting {assignment!r}: write it as section.key=value")
        *sections, last = key.strip().split(".")
        section = changed
        for name in sections:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                raise MacaronError(f"cannot set {key.strip()}: {name} is a value, not a section")
        if not text.strip():
            section[last] = None  # as if it were not there, but its spelling is checked
            continue
        try:
            section[last] = _parsed(f"value = {text.strip()}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            section[last] = text.strip()
        except ValueError as error:
            raise MacaronError(f"--set {key}: {why(error)}") from None
    return changed


def build(cls: type[T], data: Any, origin: Origin | str = "", path: KeyPath = ()) -> T:
    """Make a (nested) frozen dataclass from plain data, checking every key and type; `path` is the section."""
    return cast(T, _read(cls, data, Origin(origin) if isinstance(origin, str) else origin, path, True))


def check(cls: type[Any], data: Any, origin: Origin, path: KeyPath = ()) -> None:
    """Check the spelling of all keys and the types of their values; keys may be missing."""
    _read(cls, data, origin, path, False)


def check_fields(value: Any, *section: str) -> None:
    """Check the types of all fields of a frozen dataclass, and bring them into these types (a list into a tuple)."""
    hints = typing.get_type_hints(type(value), include_extras=True)
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        object.__setattr__(value, field.name, convert(hints[field.name], given, Origin(), (*section, field.name)))


def to_data(value: Any) -> Any:
    """The plain data of a settings dataclass, as TOML or JSON can hold it; fields that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: to_data(item) for name, item in fields.items() if item is not None}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_data(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def mentions(error: MacaronError, name: str) -> bool:
    """Whether a message has this word."""
    return re.search(rf"\b{re.escape(name)}\b", str(error)) is not None


def _read(cls: type[Any], data: Any, origin: Origin, path: KeyPath, complete: bool) -> Any:
    """The dataclass or TypedDict of some data; None, after the same checks, if it need not be complete."""
    if not isinstance(data, Mapping):
        raise MacaronError(f"{origin.prefix(path)}[{dotted(path)}] must be a section, not {shown(data)}")
    hints = typing.get_type_hints(cls, include_extras=True)
    known = _keys(cls)
    values: dict[str, Any] = {}
    for key, value in data.items():
        here = (*path, key)
        if key not in known:
            raise MacaronError(f"{origin.prefix(here)}unknown key {dotted(here)!r}{nearest(key, known)}")
        if value is None and dataclasses.is_dataclass(cls):  # unset
            continue
        values[key] = convert(hints[key], value, origin, here, complete)
    if not complete:
        return None
    for name, required in known.items():
        if required and name not in values:
            raise MacaronError(f"{origin.prefix()}missing key {dotted((*path, name))!r}")
    try:
        return cls(**values)
    except MacaronError as error:
        # A message about keys names them as in the recipe: "train.seed must be ...". An item of a list has a line.
        named = [(*path, key) for key in values if mentions(error, dotted((*path, key)))]
        item = [path] if path and isinstance(path[-1], int) else []
        raise MacaronError(f"{origin.prefix(*(named or item))}{error}") from error


def _keys(cls: type[Any]) -> dict[str, bool]:
    if typing.is_typeddict(cls):
        return {name: name in cls.__required_keys__ for name in cls.__annotations__}
    missing = dataclasses.MISSING
    return {each.name: each.default is missing and each.default_factory is missing for each in dataclasses.fields(cls)}


def convert(kind: Any, value: Any, origin: Origin, path: KeyPath, complete: bool = True) -> Any:
    """A value of a type (a dataclass, a union, ``tuple[str, ...]`` and so on), checked; or a dataclass in part."""
    options, arguments = get_origin(kind), get_args(kind)
    if options is typing.NotRequired:
        return convert(arguments[0], value, origin, path, complete)
    if options is Annotated and arguments[1] == OTHERS and isinstance(value, Mapping):
        named = {key: each for key, each in value.items() if key in _keys(arguments[0])}
        return {**value, **convert(arguments[0], named, origin, path)}
    if options is Annotated:
        found = convert(arguments[0], value, origin, path, complete)
        if found is not None and arguments[1] != OTHERS and found not in arguments[1]:  # the origin takes time
            arguments[1].check(f"{origin.prefix(path)}{dotted(path)}", found)
        return found
    if options in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        *others, last = [option for option in arguments if option is not type(None)]
        for option in others:
            try:
                return convert(option, value, origin, path, complete)
            except MacaronError:
                continue
        return convert(last, value, origin, path, complete)
    if dataclasses.is_dataclass(kind) and isinstance(value, cast(type, kind)):  # built already
        return value
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return _read(cast(type, kind), value, origin, path, complete)
    if options in (tuple, list) and isinstance(value, list | tuple):
        return options(convert(arguments[0], item, origin, (*path, i), complete) for i, item in enumerate(value))
    if options is dict and isinstance(value, Mapping):
        return {str(k): convert(arguments[1], v, origin, (*path, str(k)), complete) for k, v in value.items()}
    if options is typing.Literal and value in arguments:
        return value
    if kind is Any or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        return float(value) if kind is float else value
    if kind is Path and isinstance(value, str):
        longest = max(len(name.encode(errors="replace")) for name in value.split("/"))
        if longest > LONGEST_NAME:
            Between(0, LONGEST_NAME).check(f"{origin.prefix(path)}the bytes of a name in {dotted(path)}", longest)
        return Path(value)
    if kind is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise MacaronError(f"{origin.prefix(path)}{dotted(path)} must be at most {2**63 - 1:,}, not {value}")
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    expected = f"one of {', '.join(map(repr, arguments))}" if options is typing.Literal else str(kind)
    name = _NAMES.get(options or kind, expected)
    raise MacaronError(f"{origin.prefix(path)}{dotted(path) or 'the content'} must be {name}, not {shown(value)}")


def write_toml(sections: dict[str, dict[str, Any]]) -> str:
    """Sections of plain values as TOML; tables inside a section (a scheme as data) are written inline."""
    blocks = []
    for name, values in sections.items():
        lines = (f"{_key(key)} = {_toml(value)}" for key, value in values.items())
        blocks.append("\n".join([f"[{_key(name)}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(str(key))} = {_toml(item)}' for key, item in value.items())} }}"
    # JSON's strings are TOML's, but for one character that JSON does not escape.
    return json.dumps(value, default=str, ensure_ascii=False).replace("\x7f", "\\u007f")
