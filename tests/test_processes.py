"""Worker processes: results in order, an index each, stopped and lost ones."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

from macaron.errors import MacaronError
from macaron.processes import Workers, check_stop

INDEX: list[int] = []  # of a worker process


def set_index(index: int) -> None:
    INDEX.append(index)


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def kill_at(deadly: int, number: int) -> int:
    if number == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def index_after(path: Path, count: int) -> int:
    """This process's index, when as many processes are at work."""
    (path / str(INDEX[0])).touch()
    deadline = time.monotonic() + 60
    while len(list(path.iterdir())) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return INDEX[0]


def until_stopped(path: Path) -> None:
    (path / "started").touch()
    try:
        while True:
            check_stop()
            time.sleep(0.01)
    except KeyboardInterrupt:
        (path / "stopped").touch()


def test_results_come_in_the_order_of_the_tasks():
    with Workers(2) as workers:
        found = list(workers.map(square, range(40)))
    assert [value for value, _ in found] == [number * number for number in range(40)]
    assert os.getpid() not in {process for _, process in found}


def test_one_task_or_one_worker_needs_no_process():
    with Workers(2) as several, Workers(1) as one:
        found = [*several.map(square, [3]), *one.map(square, [4, 5])]
    assert found == [(number * number, os.getpid()) for number in (3, 4, 5)]
    with pytest.raises(MacaronError, match="at least 1, not 0"):
        Workers(0)


def test_every_process_has_an_index_of_its_own(tmp_path: Path):
    with Workers(2, set_index) as workers:
        futures = [workers.submit(index_after, tmp_path, 2) for _ in range(2)]
        assert {future.result() for future in futures} == {0, 1}


def test_a_process_that_is_killed_is_reported():
    with pytest.raises(MacaronError, match="a worker process was killed"), Workers(2) as workers:
        list(workers.map(partial(kill_at, 5), range(20)))
    with Workers(2) as workers:
        future = workers.submit(kill_at, 1, 1)
        with pytest.raises(BrokenProcessPool):
            future.result()
        assert workers.lost() == -signal.SIGKILL


def test_an_error_asks_the_running_tasks_to_stop(tmp_path: Path):
    def fail() -> None:
        with Workers(1) as workers:
            workers.submit(until_stopped, tmp_path)
            deadline = time.monotonic() + 60
            while not (tmp_path / "started").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fail()
    assert (tmp_path / "stopped").exists()


PARENT = """
import sys, time
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_processes import until_stopped
from macaron.processes import Workers

if __name__ == "__main__":
    with Workers(1) as workers:
        workers.submit(until_stopped, Path({path!r})).result()
"""


def test_workers_die_with_their_parent(tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(folder=str(Path(__file__).parent), path=str(tmp_path)))
    parent = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while _alive(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(parent.pid)
    assert not (tmp_path / "stopped").exists()


def _alive(session: int) -> bool:
    """Whether a process of this session is running."""
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True
