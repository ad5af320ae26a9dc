"""Files and folders are written completely or not at all, whatever happens in between."""

import errno
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from macaron.errors import MacaronError
from macaron.files import (
    atomic_file,
    atomic_folder,
    locked,
    read_lines,
    remove,
    remove_leftovers,
    tidy,
    write_json,
    write_text,
)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A full disk: no file may grow beyond this size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def content(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_folder(path: Path, text: str) -> None:
    with atomic_folder(path) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "a").write_text(text)
        (folder / "b").write_text(text)


def killed_while(code: str, tmp_path: Path) -> None:
    """Run Python code in a process that kills itself with SIGKILL in the middle."""
    program = f"import os, signal\nfrom pathlib import Path\nfrom macaron import files\n{code}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL


def _write_half(file: BinaryIO, error: type[BaseException]) -> None:
    file.write(b"half")
    raise error("something else")


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


# Files


def test_a_file_and_its_parents_are_written(tmp_path: Path):
    write_text(tmp_path / "a" / "b" / "text", "ü\n")
    write_json(tmp_path / "value.json", {"ü": [1, None]})
    assert (tmp_path / "a" / "b" / "text").read_bytes() == "ü\n".encode()
    assert (tmp_path / "value.json").read_text(encoding="utf-8") == '{\n "ü": [\n  1,\n  null\n ]\n}\n'
    assert json.loads((tmp_path / "value.json").read_text()) == {"ü": [1, None]}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MacaronError])
def test_an_error_leaves_the_file_as_it_was(error: type[BaseException], tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(error), atomic_file(path) as file:
        _write_half(file, error)
    assert content(tmp_path) == {"file": "before"}


def test_a_full_disk_is_named(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("before")
    with (
        file_size_limit(10_000),
        pytest.raises(MacaronError, match=r"file cannot be written: File too large\. Free some space"),
    ):
        write_text(path, "x" * 100_000)
    assert content(tmp_path) == {"file": "before"}


def test_a_killed_process_leaves_the_file_as_it_was(tmp_path: Path):
    (tmp_path / "file").write_text("before")
    killed_while(f"with files.atomic_file(Path('file')) as f:\n    f.write(b'half'); f.flush(); {KILL}", tmp_path)
    assert (tmp_path / "file").read_text() == "before"
    remove_leftovers(tmp_path)
    assert content(tmp_path) == {"file": "before"}


def test_permissions_are_kept(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o640)
    write_text(path, "after")
    assert path.stat().st_mode & 0o777 == 0o640
    fresh = tmp_path / "fresh"
    write_text(fresh, "new")
    umask = os.umask(0)
    os.umask(umask)
    assert fresh.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("made through the link", "written again"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert content(tmp_path / "elsewhere") == {"target": "written again"}


def test_a_device_is_written_and_not_replaced(tmp_path: Path):
    write_text(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(MacaronError, match=r"/dev/full cannot be written: No space left.*Free some space"):
        write_text(Path("/dev/full"), "x" * 100_000)
    assert Path("/dev/full").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)


def test_paths_that_cannot_be_written_are_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    with pytest.raises(MacaronError, match=r"file/below cannot be written: .*Choose another path"):
        write_text(tmp_path / "file" / "below", "text")
    with pytest.raises(MacaronError, match=r"folder cannot be written: Is a directory"):
        write_text(tmp_path / "folder", "text")
    with pytest.raises(MacaronError, match=r"/proc/file cannot be written"):  # even for root
        write_text(Path("/proc/file"), "text")
    assert content(tmp_path) == {"file": "in the way"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(MacaronError, match="cannot be written: Permission denied"):
        write_text(tmp_path / "file", "text")
    with pytest.raises(MacaronError, match="cannot be written: Permission denied"):
        write_folder(tmp_path / "folder", "text")


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "input"), ConnectionResetError(104, "reset")]
)
def test_other_errors_of_the_system_pass_unchanged(error: OSError, tmp_path: Path):
    with pytest.raises(type(error)), atomic_file(tmp_path / "file"):
        raise error
    with pytest.raises(type(error)), atomic_folder(tmp_path / "folder"):
        raise error
    assert list(tmp_path.iterdir()) == []


# Folders


def test_a_folder_is_written_and_replaced(tmp_path: Path):
    for text in ("first", "second"):
        write_folder(tmp_path / "deep" / "folder", text)
        assert content(tmp_path) == {"deep/folder/b": text, "deep/folder/part/a": text}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MacaronError])
def test_an_error_leaves_the_folder_as_it_was(error: type[BaseException], tmp_path: Path):
    write_folder(tmp_path / "folder", "before")
    before = content(tmp_path)
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as folder, (folder / "b").open("wb") as file:
        _write_half(file, error)
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path: Path):
    write_folder(tmp_path / "folder", "before")
    before = content(tmp_path)
    with (
        file_size_limit(10_000),
        pytest.raises(MacaronError, match=r"folder cannot be written: File too large\. Free some space"),
    ):
        write_folder(tmp_path / "folder", "x" * 100_000)
    assert content(tmp_path) == before


def test_a_killed_process_leaves_the_folder_as_it_was(tmp_path: Path):
    write_folder(tmp_path / "folder", "before")
    before = content(tmp_path / "folder")
    killed_while(
        f"with files.atomic_folder(Path('folder')) as f:\n    (f / 'c').write_text('half'); {KILL}",
        tmp_path,
    )
    assert content(tmp_path / "folder") == before
    write_folder(tmp_path / "folder", "after")  # the next process removes what was left
    assert content(tmp_path) == {"folder/b": "after", "folder/part/a": "after"}


def test_killed_between_the_two_renames_the_old_folder_comes_back(tmp_path: Path):
    """The one moment in which neither folder has the name: the next process puts the old one back."""
    write_folder(tmp_path / "folder", "before")
    before = content(tmp_path)
    kill = f"rename = Path.rename\ndef deadly(path, target):\n    rename(path, target); {KILL}\nPath.rename = deadly\n"
    killed_while(f"{kill}with files.atomic_folder(Path('folder')) as f:\n    (f / 'c').write_text('new')", tmp_path)
    assert not (tmp_path / "folder").exists()
    with pytest.raises(ValueError, match="failed as well"), atomic_folder(tmp_path / "folder"):
        raise ValueError("failed as well")
    assert content(tmp_path) == before
    killed_while(f"{kill}with files.atomic_folder(Path('folder')) as f:\n    (f / 'c').write_text('new')", tmp_path)
    remove_leftovers(tmp_path)
    assert content(tmp_path) == before


def test_what_is_left_beside_a_complete_folder_is_removed_without_writing_it_again(tmp_path: Path):
    write_folder(tmp_path / "folder", "before")
    kill = f"files.shutil.rmtree = lambda path, **_: {KILL} if Path(path).exists() else None"
    killed_while(f"{kill}\nwith files.atomic_folder(Path('folder')) as f:\n    (f / 'c').write_text('new')", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", ".folder.removed", ".folder.lock"}
    with locked(tmp_path / ".folder.lock", tmp_path / "folder"):
        tidy(tmp_path / "folder")  # another process writes it
        assert (tmp_path / ".folder.removed").exists()
    tidy(tmp_path / "folder")
    assert content(tmp_path) == {"folder/c": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def _hold(path: Path, ready: "multiprocessing.synchronize.Event", go: "multiprocessing.synchronize.Event") -> None:
    with atomic_folder(path) as folder:
        (folder / "a").write_text("the first process")
        ready.set()
        assert go.wait(60)


def test_two_writers_are_refused(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    ready, go = context.Event(), context.Event()
    first = context.Process(target=_hold, args=(tmp_path / "folder", ready, go))
    first.start()
    assert ready.wait(60)
    with (
        pytest.raises(MacaronError, match=r"folder is being written by process \d+\. Wait for it to end"),
        atomic_folder(tmp_path / "folder"),
    ):
        pass
    go.set()
    first.join()
    assert content(tmp_path) == {"folder/a": "the first process"}


def test_a_linked_folder_stays_a_link(tmp_path: Path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    write_folder(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "target") == {"b": "text", "part/a": "text"}


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path):
    (tmp_path / "thesis").write_text("years of work")
    with pytest.raises(MacaronError, match="thesis is a file: give a folder"):
        write_folder(tmp_path / "thesis", "text")
    assert content(tmp_path) == {"thesis": "years of work"}


# Removing


def test_remove(tmp_path: Path):
    (tmp_path / "folder" / "part").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").write_text("kept")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "file").write_text("text")
    for name in ("folder", "link", "file", "missing"):
        remove(tmp_path / name)
    assert content(tmp_path) == {"target/kept": "kept"}
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_folder_that_is_being_removed_never_looks_complete(tmp_path: Path):
    write_folder(tmp_path / "folder", "before")
    kill = f"files.shutil.rmtree = lambda path, **_: {KILL} if Path(path).exists() else None"
    killed_while(f"{kill}\nfiles.remove(Path('folder'))", tmp_path)
    assert not (tmp_path / "folder").exists()
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_are_removed(tmp_path: Path):
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".update-8.removed").mkdir()
    (tmp_path / ".hidden").write_text("not ours")
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "missing")
    assert content(tmp_path) == {".hidden": "not ours"}


def test_a_byte_order_mark_alone_is_no_line(tmp_path: Path):
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "line.txt").write_bytes(b"\xef\xbb\xbf\n")
    assert [list(read_lines(tmp_path / f"{name}.txt")) for name in ("mark", "line")] == [[], [""]]
