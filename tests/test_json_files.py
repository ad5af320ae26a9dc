"""The one reader of JSON: every key and type is checked, and nothing exceeds its limits."""

import os
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.json_files import Count, Real, parse_json, read_json
from macaron.limits import DEEPEST, LARGEST_TOML
from macaron.recipe import load_recipe
from macaron.settings import OTHERS, load_toml


class Part(TypedDict):
    name: str


class Example(TypedDict):
    size: Count
    loss: Real | None
    parts: list[Part]
    tag: NotRequired[str]


GOOD = '{"size": 3, "loss": null, "parts": [{"name": "a"}]}'


def test_what_conforms_is_returned(tmp_path: Path):
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())  # some editors write a byte order mark
    assert read_json(path, Example) == {"size": 3, "loss": None, "parts": [{"name": "a"}]}
    assert parse_json('{"name": "a", "more": [1]}', "x", Annotated[Part, OTHERS]) == {"name": "a", "more": [1]}
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json", Example)
    with pytest.raises(MacaronError, match="Is a directory"):
        read_json(tmp_path, Example)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MacaronError, match="a pipe, not a file"):
        read_json(tmp_path / "pipe", Example)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("3", '"3"'), "size must be a whole number, not '3'"),
        (GOOD.replace("3", "true"), "size must be a whole number, not True"),
        (GOOD.replace("3", "null"), "size must be a whole number, not None"),
        (GOOD.replace("3", "3.0"), "size must be a whole number, not 3.0"),
        (GOOD.replace("3", "-1"), "size must be at least 0, not -1"),
        (GOOD.replace("3", "1" + "0" * 17), "size must be at most 9,007,199,254,740,992, not 1"),
        (GOOD.replace('"size": 3, ', ""), "missing key 'size'"),
        (GOOD.replace("size", "sizes"), "unknown key 'sizes'; did you mean 'size'"),
        (GOOD.replace('"a"', "1"), r"parts\[0\].name must be a string, not 1"),
        (GOOD.replace('{"name": "a"}', "[]"), r"\[parts\[0\]\] must be a section"),
        (GOOD.replace("null", '"nan"'), "loss must be a number"),
        ("[]", "must be a section"),
        ("", "not valid JSON"),
        (GOOD[:-1], "not valid JSON"),
        (GOOD.replace("loss", "size"), "a key is there twice"),
        (GOOD.replace("null", "NaN"), "a number is not finite"),
        (GOOD.replace("null", "-1e999"), "a number is not finite"),
        (GOOD.replace("3", "3" * 50), "more than 40 digits"),
        (GOOD.replace("3", "3" * 5000), "4300 digits"),
        (GOOD.replace('"a"', '"\\ud800"'), "not UTF-8"),
        (GOOD.replace('"a"', '"\\u0000"'), "NUL"),
        (GOOD.replace("null", "[" * 60 + "]" * 60), "more than 50 levels of nesting"),
        (GOOD.replace("null", "[" * 200_000), "more than 50 levels of nesting"),
    ],
)
def test_what_does_not_conform_is_refused_with_its_key(text: str, message: str, tmp_path: Path):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(MacaronError, match=rf"file\.json: .*{message}.*\. Copy it again\.") as caught:
        read_json(path, Example, "Copy it again.")
    assert len(str(caught.value)) < 400


def test_files_that_are_too_large_or_no_text(tmp_path: Path):
    path = tmp_path / "file.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(MacaronError, match=r"file\.json: not valid JSON \(not UTF-8 text: .*0xff"):
        read_json(path, dict[str, str])
    path.write_bytes(b" " * 2000 + GOOD.encode())
    with pytest.raises(MacaronError, match="larger than the limit of 1,000 bytes"):
        read_json(path, Example, largest=1000)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["size", "loss", "parts", "x"]), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_anything_is_accepted_unchanged_or_refused(value: Any):
    import json

    try:
        found = parse_json(json.dumps(value), "file.json", Example)
    except MacaronError as error:
        assert str(error).startswith("file.json: ")  # noqa: PT017
    else:
        assert found == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "levels of nesting"),
        ("a = " + "{a=" * 5000, "levels of nesting"),
        ("a." * 300_000 + "a = 1", "levels of nesting"),  # tomllib would take gigabytes
        ("[" + '"a".' * DEEPEST + "a]", "levels of nesting"),
        ("a = " + "9" * 5000, "4300 digits"),
        ("a = " + "9" * 50, "more than 40 digits"),
        ('a = "\\u0000"', "NUL"),
        (f"a = [{'0,' * 1001}]", "a list has more than 1,000 items"),
        ("#" * (LARGEST_TOML + 1), "larger than the limit of 1,048,576 bytes"),
    ],
)
def test_the_limits_of_recipes(text: str, message: str, tmp_path: Path):
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(MacaronError, match=rf"r\.toml: not valid TOML: .*{message}"):
        load_toml(path)


def test_the_line_of_a_key_is_not_looked_for_in_a_very_long_recipe(tmp_path: Path):
    """It would take hours: the text is parsed up to each line."""
    path = tmp_path / "r.toml"
    path.write_text("#\n" * 100_000 + "[train]\nsede = 1\n")
    with pytest.raises(MacaronError, match=r"r\.toml: unknown key 'train.sede'; did you mean 'seed'"):
        load_recipe(path)
    with pytest.raises(MacaronError, match=r"--set train\.seed: .*4300 digits"):
        load_toml(path, ["train.seed=" + "1" * 5000])
