"""One writer at a time: locks that name their owner, those of killed processes, and what they leave."""

import errno
import fcntl
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from macaron.errors import CannotWrite, MacaronError
from macaron.files import LOCK, atomic_file, atomic_folder, check_unused, write_json, write_text, writing

HOST = os.uname().nodename
HOLD = "import sys; from pathlib import Path; from macaron.files import atomic_file, writing\n"


def holding(code: str, folder: Path) -> subprocess.Popen[str]:
    """A process in a ``with`` statement."""
    program = f"{HOLD}with {code}:\n    print('in', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


def test_the_second_is_told_who_the_first_is_and_a_killed_one_is_forgotten(tmp_path: Path):
    run = tmp_path / "run"
    with holding("writing(Path('run'))", tmp_path) as first:
        assert (run / LOCK).read_text() == f"{first.pid} {HOST}\n"
        with (
            pytest.raises(MacaronError, match=rf"run is being written by process {first.pid}\. Wait for it"),
            writing(run),
        ):
            pass
        assert (run / LOCK).read_text() == f"{first.pid} {HOST}\n"  # still its own
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert (run / LOCK).exists()
    check_unused(run)  # nothing else is in it
    with writing(run):
        assert (run / LOCK).read_text() == f"{os.getpid()} {HOST}\n"
    assert list(run.iterdir()) == []


def test_another_host_is_named_with_the_file_to_remove(tmp_path: Path):
    (tmp_path / LOCK).write_text("123 elsewhere\n")
    message = rf"is being written by process 123 on elsewhere\. .* remove {tmp_path / LOCK}$"
    with pytest.raises(MacaronError, match=message), writing(tmp_path):
        pass
    assert (tmp_path / LOCK).read_text() == "123 elsewhere\n"
    (tmp_path / LOCK).unlink()
    with writing(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"12", b"x y\n", b"1" * 5000 + b" host\n"])
def test_a_damaged_lock_of_nobody(content: bytes, tmp_path: Path):
    (tmp_path / LOCK).write_bytes(content)
    with writing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """There the number of the process decides."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / LOCK).write_text(f"{gone.pid} {HOST}\n")
    with writing(tmp_path):
        with pytest.raises(MacaronError, match=f"by process {os.getpid()}"), writing(tmp_path):
            pass
        (tmp_path / f".text.{gone.pid}.partial").write_text("of whom?")
        write_text(tmp_path / "text", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".text.{gone.pid}.partial", "text"]


def test_a_new_folder_goes_if_nothing_came_of_it(tmp_path: Path):
    with pytest.raises(ValueError, match="nothing"), writing(tmp_path / "new"):
        raise ValueError("nothing")
    assert list(tmp_path.iterdir()) == []
    with writing(tmp_path / "new"):
        write_text(tmp_path / "new" / "file", "text")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_the_next_write_removes_what_a_killed_one_left_but_not_what_is_being_written(tmp_path: Path):
    with (
        holding("atomic_file(Path('file'))", tmp_path) as killed,
        holding("atomic_file(Path('file'))", tmp_path) as live,
    ):
        killed.kill()
        killed.wait()
        write_text(tmp_path / "other", "text")
        assert len(list(tmp_path.glob(".file.*"))) == 2
        write_text(tmp_path / "file", "text")
        assert [path.name for path in tmp_path.glob(".file.*")] == [f".file.{live.pid}.partial"]
        live.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


def test_a_full_disk_inside_a_folder_names_the_folder(tmp_path: Path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(MacaronError) as caught, atomic_folder(tmp_path / "model") as folder:
            write_json(folder / "config.json", ["x" * 10_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value) == f"{tmp_path / 'model'} cannot be written: File too large. Free some space."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # a worker sends it to its parent
    assert isinstance(caught.value, CannotWrite)
    assert list(tmp_path.iterdir()) == []


def test_one_file_is_not_written_twice_at_once(tmp_path: Path):
    with atomic_file(tmp_path / "file") as file:
        file.write(b"first")
        with pytest.raises(MacaronError, match="being written by another process"):
            write_text(tmp_path / "file", "second")
    assert (tmp_path / "file").read_bytes() == b"first"
