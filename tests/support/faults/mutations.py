"""Damage to files, drawn from a seeded generator: any bytes, and changes that know the format."""

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Mutation = Callable[[Random, bytes], bytes]
MANY_DIGITS = "7" * 5000
#: Text of values that a JSON or TOML file may hold in place of others.
_JSON = r"""null true false 0 -1 1 2 1000000000 1000000000000000000 -9223372036854775808 4294967296 1e308 1e-320 1e999
-0.0 0.5 NaN Infinity -Infinity "" "x" "1" "\ud800" "\u0000" "../../x" "{}" "%s" [] {} [[]] {"a":1} [1,2]"""
_TOML = r"""true 0 -1 1 2 1000000000 1000000000000000000 1e308 nan inf -0.5 0.5 0.0 1e-320 1979-05-27 12:30:00
"" "x" "../../x" "{lang}" "a{b" "\u0000" "auto" [] {} {path=1} [[]] ["x"] [1,2] {"a.b"=1}"""
_DEEP = ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000)
JSON_VALUES = (*_JSON.split(), *_DEEP, MANY_DIGITS, f'"{"long " * 50_000}"')
TOML_VALUES = (*_TOML.split(), *_DEEP[:2], MANY_DIGITS, "[" * 5_000, "0x" + "f" * 5000, f"'{'long ' * 10_000}'")


def _place(draw: Random, data: bytes, most: int = 64) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.randint(1, most))


def _flip(draw: Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data)
    return data[:start] + data[end:]


def _insert(draw: Random, data: bytes) -> bytes:
    start, _ = _place(draw, data)
    odd = (
        b"\0",
        b"\xff\xfe",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\r",
        b"\n",
        b"\t",
        b'"',
        b"\xe2\x80\xa8",
    )
    return (
        data[:start] + (draw.choice(odd) if draw.random() < 0.7 else draw.randbytes(draw.randint(1, 32))) + data[start:]
    )


def _swap(draw: Random, data: bytes) -> bytes:
    (a, b), (c, d) = sorted([_place(draw, data), _place(draw, data)])
    b = min(b, c)
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _fill(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data, 4096)
    return data[:start] + draw.choice((b"\0", b"\xff", b" ", b"9")) * (end - start) + data[end:]


def _double(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data, 1024)
    return data[:end] + data[start:end] + data[end:]


#: Damage to any file.
BYTES: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _cut,
    _insert,
    _swap,
    _fill,
    _double,
    lambda draw, data: data[: draw.randrange(len(data) + 1)],
    lambda draw, data: data + draw.randbytes(draw.randint(1, 64)),
    lambda draw, data: b"",
    lambda draw, data: draw.randbytes(len(data)),
)


def any_bytes(draw: Random, data: bytes) -> bytes:
    return draw.choice(BYTES)(draw, data)


def _in_line(draw: Random, line: bytes, longest: int) -> bytes:
    mark = b"\t" if b"\t" in line else b","
    cells = line.split(mark)
    odd = [*b'--3 nan 1e999 -1 " "" \xff x \0'.split(), b"", b" ", b"a\tb", b"7" * 5000, b"x" * longest]
    cells[draw.randrange(len(cells))] = draw.choice(odd)
    return mark.join(cells)


def text(draw: Random, data: bytes) -> bytes:
    """Damage to lines."""
    if draw.random() < 0.4:
        return any_bytes(draw, data)
    lines = data.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.randrange(8)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(i, lines[j])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 3:
        lines = [line + b"\r" for line in lines[:-1]] + lines[-1:]
    elif kind == 4:
        lines[0] = b"\xef\xbb\xbf" + lines[0]
    elif kind == 5:
        lines[i] = lines[i].replace(b"\t", b" ", 1).replace(b",", b";", 1)
    else:
        # Of a corpus longer lines are left out; a text that is translated takes as long as it is long.
        lines[i] = _in_line(draw, lines[i], 3 << 20 if len(lines) > 40 else 1 << 16)
    return b"\n".join(lines)


def _spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    return [path, *(spot for key, item in items for spot in _spots(item, (*path, key)))] if path or items else [path]


def _changed_json(draw: Random, content: Any) -> str:
    """The text of a JSON value with one of its parts replaced, removed or added."""
    marker = "@@replaced@@"
    root = [json.loads(json.dumps(content))]
    spots = [(0, *path) for path in _spots(content)]
    # The keys at the top are those that a reader looks at.
    shallow = [spot for spot in spots if len(spot) <= 2]
    spot = draw.choice(shallow if draw.random() < 0.5 else spots)
    owner: Any = root
    for key in spot[:-1]:
        owner = owner[key]
    kind, raw = draw.randrange(6), draw.choice(JSON_VALUES)
    if kind == 0 and len(spot) > 1:
        del owner[spot[-1]]
    elif kind == 1 and isinstance(owner[spot[-1]], dict):
        owner[spot[-1]]["unknown_key"] = marker
    elif kind == 2 and isinstance(owner[spot[-1]], int | float) and not isinstance(owner[spot[-1]], bool):
        owner[spot[-1]] = owner[spot[-1]] + draw.choice((1, -1, 0.5, 1000))
    elif kind == 3 and isinstance(owner[spot[-1]], list) and owner[spot[-1]]:
        owner[spot[-1]] = owner[spot[-1]] * 2 if draw.random() < 0.5 else owner[spot[-1]][:-1]
    else:
        owner[spot[-1]] = marker
    return json.dumps(root[0]).replace(f'"{marker}"', raw)


def as_json(draw: Random, data: bytes) -> bytes:
    """Damage to a JSON file: mostly to its values."""
    if draw.random() < 0.2:
        return any_bytes(draw, data)
    return _changed_json(draw, json.loads(data)).encode()


def json_lines(draw: Random, data: bytes) -> bytes:
    """The same in one line of several."""
    if draw.random() < 0.3:
        return text(draw, data)
    lines = data.split(b"\n")
    i = draw.randrange(len(lines) - 1)
    lines[i] = _changed_json(draw, json.loads(lines[i])).encode()
    return b"\n".join(lines)


def toml(draw: Random, data: bytes) -> bytes:
    """Damage to a TOML file: mostly to its values."""
    if draw.random() < 0.15:
        return any_bytes(draw, data)
    lines = data.decode().split("\n")
    with_value = [i for i, line in enumerate(lines) if " = " in line]
    i, kind = draw.choice(with_value), draw.randrange(8)
    key = lines[i].partition(" = ")[0]
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(i, lines[draw.choice(with_value)])
    elif kind == 2:
        lines.insert(i, f"{key}x = {draw.choice(TOML_VALUES)}")
    elif kind == 3:
        lines.insert(i, draw.choice(("[" + "a." * 5000 + "b]", "[[train]]", "[other]", "[", "a" * 100_000 + " = 1")))
    else:
        lines[i] = f"{key} = {draw.choice(TOML_VALUES)}"
    return "\n".join(lines).encode()


def safetensors(draw: Random, data: bytes) -> bytes:
    """Damage to a safetensors file: its length field, its header, its numbers."""
    kind = draw.random()
    size = struct.unpack("<Q", data[:8])[0]
    if kind < 0.3:
        return any_bytes(draw, data)
    if kind < 0.4:
        return struct.pack("<Q", draw.choice((0, 1, size - 1, size + 1, 1 << 31, 1 << 40, (1 << 64) - 1))) + data[8:]
    if kind < 0.7:
        header = _changed_json(draw, json.loads(data[8 : 8 + size])).encode()
        return struct.pack("<Q", len(header)) + header + data[8 + size :]
    if kind < 0.8:
        odd = struct.pack("<f", draw.choice((float("nan"), float("inf"), 1e38, -1e30)))
        start = 8 + size + 4 * draw.randrange((len(data) - 8 - size) // 4)
        return data[:start] + odd + data[start + 4 :]
    return data[: 8 + size] + _flip(draw, data[8 + size :])


def numbers(kind: str) -> Mutation:
    """Damage to a file of integers of this dtype."""

    def mutate(draw: Random, data: bytes) -> bytes:
        if draw.random() < 0.3:
            return any_bytes(draw, data)
        values, info = np.frombuffer(data, kind).copy(), np.iinfo(kind)
        i, j = draw.randrange(len(values)), draw.randrange(len(values))
        odd = (info.max, 0, 281, 1 << 15, int(values[j]), min(info.max, int(values[i]) + draw.choice((1, 2, 1 << 32))))
        values[i] = min(int(info.max), int(draw.choice(odd)))
        return values.tobytes()

    return mutate


def markup(draw: Random, data: bytes) -> bytes:
    """Damage to a web page or to subtitles."""
    if draw.random() < 0.5:
        return text(draw, data)
    odd = b"""<b> </b> <p </p <!-- --> <!x <?x &amp &#0; &#x110000; &#99999999999; &notin; <a_href="<b>"> <a_href='
    <script> </script> <plaintext> <title> <svg> <code> <pre_translate=no> </ > < <br/> <img_src=x> {\\an8} { } <i>
    99:99:99,999_--> 0:00:00.0_--> --> 1"""
    start = draw.randrange(len(data))
    chosen = draw.choice(odd.split()).replace(b"_", b" ")
    return data[:start] + chosen * draw.choice((1, 1, 1, 3, 20_000)) + data[start:]


def keys(draw: Random, data: bytes) -> bytes:
    """Damage to a file of keys, or to the number after a key."""
    if draw.random() < 0.7:
        return text(draw, data)
    odd = (b"0", b"-1", b"1.5", b"\xd9\xa1", b"7" * 5000, b"10000000000", b"x", b"1 2", b"", b"#")
    return data.replace(b"1000", draw.choice(odd))


def form(draw: Random, data: bytes) -> bytes:
    """Damage to the body of a request that is a form."""
    if draw.random() < 0.5:
        return any_bytes(draw, data)
    odd = (
        b"&",
        b"=",
        b"%",
        b"%ff",
        b"%00",
        b"+",
        b"&q=x",
        b"&a=b" * 5000,
        b"\xff",
        b"%ed%a0%80",
        b"q[]=1",
        b"\r\n",
        b"--mark",
    )
    start = draw.randrange(len(data))
    return data[:start] + draw.choice(odd) + data[start:]
