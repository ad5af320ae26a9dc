"""Strict settings: TOML into frozen dataclasses, dotted overrides, and no unknown key left unsaid."""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from macaron.errors import MacaronError

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file; a mistake names the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MacaronError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MacaronError(f"{path}: not valid TOML: {error}") from error


def override(data: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``key.key=value`` assignments; values are TOML (a bare word is taken as a string)."""
    changed: dict[str, Any] = _copy(data)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise MacaronError(f"cannot read the setting {assignment!r}: write it as section.key=value")
        *sections, last = key.strip().split(".")
        place = changed
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise MacaronError(f"cannot set {key.strip()}: {section} is a value, not a section")
        place[last] = _toml_value(text.strip())
    return changed


def build(cls: type[T], data: Mapping[str, Any], where: str = "") -> T:
    """Make a (nested) frozen dataclass from plain data, checking every key and type.

    :param where: the file, for messages
    """
    return _build(cls, data, where, "")


def check_fields(value: Any) -> None:
    """Check the types of all fields of a frozen dataclass, and bring them into these types (a list into a tuple)."""
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        object.__setattr__(value, field.name, _convert(hints[field.name], given, "", field.name))


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


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` where something is near, otherwise the list of what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _build(cls: type[T], data: Any, where: str, prefix: str) -> T:
    place = f"{where}: " if where else ""
    if not isinstance(data, Mapping):
        raise MacaronError(f"{place}[{prefix.rstrip('.')}] must be a section, not {data!r}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in fields:
            raise MacaronError(f"{place}unknown key {prefix + key!r}{nearest(key, fields)}")
        values[key] = _convert(hints[key], value, where, prefix + key)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise MacaronError(f"{place}missing key {prefix + name!r}")
    try:
        return cls(**values)
    except MacaronError as error:
        raise MacaronError(f"{place}{error}") from error


def _convert(kind: Any, value: Any, where: str, key: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        options = [option for option in arguments if option is not type(None)]
        for option in options[:-1]:
            try:
                return _convert(option, value, where, key)
            except MacaronError:
                continue
        return _convert(options[-1], value, where, key)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, where, key + ".")  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, where, f"{key}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {str(k): _convert(arguments[1], v, where, f"{key}.{k}") for k, v in value.items()}
    if origin is typing.Literal and value in arguments:
        return value
    if kind is Any or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        return float(value) if kind is float else value
    if kind is Path and isinstance(value, str):
        return Path(value)
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    expected = f"one of {', '.join(map(repr, arguments))}" if origin is typing.Literal else _name(kind)
    raise MacaronError(f"{f'{where}: ' if where else ''}{key} must be {expected}, not {value!r}")


def _name(kind: Any) -> str:
    plain = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Path: "a path"}
    if get_origin(kind) is tuple:
        return "a list"
    return plain.get(kind, str(kind))


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copy(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _copy(value) for key, value in data.items()}
    return list(data) if isinstance(data, list) else data
