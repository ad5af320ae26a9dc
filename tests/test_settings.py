"""Settings are strict, and their messages name the key."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from macaron.errors import MacaronError
from macaron.settings import Origin, build, check, load_toml, override, to_data


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = Inner()
    sizes: tuple[int, ...] = ()
    path: Path | None = None
    free: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise MacaronError("name is bad")


def test_round_trip():
    data = {"name": "x", "inner": {"rate": 1, "kind": "b"}, "sizes": [1, 2], "path": "a/b", "free": {"k": 3}}
    made = build(Outer, data)
    assert made == Outer("x", Inner(1.0, "b"), (1, 2), Path("a/b"), {"k": 3})
    assert build(Outer, to_data(made)) == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "missing key 'name'"),
        ({"name": "x", "iner": {}}, "unknown key 'iner'; did you mean 'inner'"),
        ({"name": "x", "inner": {"rat": 1}}, "unknown key 'inner.rat'; did you mean 'rate'"),
        ({"name": "x", "inner": {"rate": "fast"}}, "inner.rate must be a number, not 'fast'"),
        ({"name": "x", "inner": {"kind": "c"}}, "inner.kind must be one of 'a', 'b', not 'c'"),
        ({"name": "x", "sizes": [1, "b"]}, r"sizes\[1\] must be a whole number, not 'b'"),
        ({"name": "x", "sizes": True}, "sizes must be a list"),
        ({"name": 3}, "name must be a string, not 3"),
        ({"name": "x", "inner": 3}, r"\[inner\] must be a section"),
        ({"name": "bad"}, "f.toml: name is bad"),
    ],
)
def test_mistakes_are_named(data: dict[str, Any], message: str):
    with pytest.raises(MacaronError, match=message):
        build(Outer, data, "f.toml")


def test_overrides():
    data = {"inner": {"rate": 1.0}}
    changed = override(data, ["inner.rate=2e-3", "name=plain words", "sizes=[1, 2]", "free.k='3'"])
    assert changed == {"inner": {"rate": 0.002}, "name": "plain words", "sizes": [1, 2], "free": {"k": "3"}}
    assert data == {"inner": {"rate": 1.0}}
    for bad in ("rate", "=3", "inner.rate.x=1"):
        with pytest.raises(MacaronError):
            override(data, [bad])


def test_files(tmp_path: Path):
    file = tmp_path / "r.toml"
    file.write_text("a = \n")
    with pytest.raises(MacaronError, match=r"r\.toml: not valid TOML.*line 1"):
        load_toml(file)
    file.write_bytes(b"a = '\xff'")
    with pytest.raises(MacaronError, match="not UTF-8"):
        load_toml(file)


TEXT = """\
# rate = 1
name = "x"  # inner
free = { deep = { kay = 1 } }

[inner]
kind = "a"
sizes.deep = '''
kind
rate'''
list = [
  { a = 1 },
  { b = 2, odd = 3 },
]

[[inner.many]]
name = "first"
[[inner.many]]
"quoted key" = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("free",), 3),
        (("free", "deep", "kay"), 3),
        (("inner",), 5),
        (("inner", "kind"), 6),
        (("inner", "sizes", "deep"), 7),
        (("inner", "list", 1, "odd"), 12),
        (("inner", "many", 0, "name"), 16),
        (("inner", "many", 1, "quoted key"), 18),
    ],
)
def test_the_line_of_a_key(path: tuple[str | int, ...], line: int):
    assert Origin("f.toml", TEXT).prefix(path) == f"f.toml, line {line}: "


def test_the_origin_of_a_setting():
    origin = Origin("f.toml", "[inner]\nrate = 1\n", ("inner.rate=2", "other.key=3"))
    assert origin.prefix(("inner", "rate")) == "--set inner.rate=2: "
    assert origin.prefix(("inner",)) == "f.toml, line 1: "
    assert origin.prefix(("other",)) == "--set other.key=3: "
    assert origin.prefix(("inner", "missing")) == origin.prefix() == "f.toml: "
    assert Origin().prefix(("a",)) == ""


def test_messages_name_the_line(tmp_path: Path):
    file = tmp_path / "f.toml"
    file.write_text('name = "bad"\n\n[inner]\nrat = 1\n')
    content, origin = load_toml(file)
    with pytest.raises(MacaronError, match=r"f\.toml, line 4: unknown key 'inner.rat'; did you mean 'rate'"):
        build(Outer, content, origin)
    with pytest.raises(MacaronError, match=r"f\.toml, line 4: unknown key"):
        check(Outer, content, origin)
    content, origin = load_toml(file, ["inner={}"])
    check(Outer, content, origin)  # its value is not looked at
    with pytest.raises(MacaronError, match=r"f\.toml, line 1: name is bad"):
        build(Outer, content, origin)
    check(Outer, {}, origin)  # keys may be missing


def test_a_message_that_is_raised_later_names_the_origin():
    origin = Origin("f.toml", "[inner]\nrate = 1\nsizes = [2, 3]\n", ("inner.kind=b",), {"data.out": "--out here"})
    for message, place in {
        "inner.rate is too high here: raise inner.kind": "f.toml, line 2: ",
        "inner.kind = b: not today": "--set inner.kind=b: ",
        "the third of inner.sizes[2] is bad": "",
        "the second of inner.sizes[1] is bad": "f.toml, line 3: ",
        "folder/inner.rate is a file, f.toml, inner.other = 3 too": "",
        "no room for data.out": "--out here: ",
        "f.toml, line 2: inner.rate was named": "",
    }.items():
        with pytest.raises(MacaronError) as caught, origin.located(), origin.located():
            raise MacaronError(message)
        assert str(caught.value) == place + message


def test_a_message_about_several_settings_names_all_origins(tmp_path: Path):
    @dataclass(frozen=True)
    class Range:
        low: int = 0
        high: int = 9

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise MacaronError("low is above high")

    origin = Origin("f.toml", "high = 2\n", ("low=3",))
    with pytest.raises(MacaronError, match=r"^f\.toml, line 1; --set low=3: low is above high$"):
        build(Range, {"high": 2, "low": 3}, origin)
