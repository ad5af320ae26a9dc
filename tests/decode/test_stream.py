"""Windows of input, and output that is complete or absent."""

import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from macaron.decode import stream
from macaron.errors import MacaronError


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write to, of which standard input is the other."""
    reader, writer = os.pipe()
    monkeypatch.setattr(stream.sys, "stdin", os.fdopen(reader, "r"))
    yield writer
    with suppress(OSError):  # the test may have closed it
        os.close(writer)


def test_lines_come_as_they_arrive(pipe: int):
    windows = stream.windows(None, 1000)
    os.write(pipe, b"one\n")
    assert next(windows) == ["one"]
    os.write(pipe, b"two\nthree\nfo")
    assert next(windows) == ["two", "three"]
    os.write(pipe, b"ur\n\n\nlast")
    assert next(windows) == ["four", "", ""]
    os.close(pipe)
    assert list(windows) == [["last"]]


def test_full_windows_grow_and_keep_every_line(pipe: int, tmp_path: Path):
    lines = [f"line {i}" for i in range(3000)]
    data = "\n".join(lines).encode()
    (tmp_path / "text").write_bytes(data)
    (tmp_path / "text.gz").write_bytes(gzip.compress(data + b"\n"))
    os.write(pipe, data)
    os.close(pipe)
    for path in (None, tmp_path / "text", tmp_path / "text.gz"):
        sizes = []
        found: list[str] = []
        for window in stream.windows(path, 100):
            sizes.append(sum(len(line) + 1 for line in window))
            found += window
        assert found == lines
        assert sizes[0] < 120
        assert max(sizes) < 1700
        assert sizes[5] > 1500


def test_what_ends_a_line(pipe: int):
    os.write(pipe, "\ufeffa\r\nb\u2028c\x0bd\x85e\n\r\nf\rg\n".encode())
    os.close(pipe)
    assert list(stream.windows(None, 1000)) == [["a", "b\u2028c\x0bd\x85e", "", "f\rg"]]


def test_bad_bytes_are_named_after_what_came_before(pipe: int, tmp_path: Path):
    data = b"good\nfine\nbad \xff\nnever\n"
    os.write(pipe, data)
    os.close(pipe)
    (tmp_path / "text").write_bytes(data)
    for path, name in ((None, "standard input"), (tmp_path / "text", str(tmp_path / "text"))):
        windows = stream.windows(path, 1000)
        assert next(windows) == ["good", "fine"]
        with pytest.raises(MacaronError, match=f"{name}, line 3: not valid UTF-8 \\(byte 5"):
            next(windows)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A device gives zeros for ever."""
    for module in ("macaron.files", "macaron.decode.stream"):
        monkeypatch.setattr(f"{module}.LONGEST_LINE", 1 << 20)
    with pytest.raises(MacaronError, match="/dev/zero, line 1: longer than 1,048,576 bytes"):
        list(stream.windows(Path("/dev/zero"), 1000))


def test_no_input(pipe: int):
    os.close(pipe)
    assert list(stream.windows(None, 1000)) == []


def test_output_is_complete_or_absent(tmp_path: Path):
    place = tmp_path / "out"
    with stream.output(place) as file:
        file.write(b"new")
        assert not place.exists()
    assert place.read_bytes() == b"new"
    place.chmod(0o640)
    with suppress(KeyboardInterrupt), stream.output(place) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert place.read_bytes() == b"new"
    link = tmp_path / "link"
    link.symlink_to(place)
    with stream.output(link) as file:
        file.write(b"newer")
    assert (link.is_symlink(), place.read_bytes(), place.stat().st_mode & 0o777) == (True, b"newer", 0o640)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "link"}
    with stream.output(Path("/dev/null")) as file:
        file.write(b"gone")
    assert not Path("/dev/null").is_file()


def test_output_in_a_folder_that_is_not_there_names_the_users_path(tmp_path: Path):
    path = tmp_path / "nowhere" / "out.en"
    with pytest.raises(MacaronError, match=f"{path}: there is no folder"), stream.output(path):
        pass
