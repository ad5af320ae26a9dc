"""Several runs at a time on one machine: each is a ``macaron train`` of its own, its lines are printed with its name."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from macaron.errors import MacaronError, same_command
from macaron.files import write_text
from macaron.recipe import Recipe
from macaron.settings import write_toml

#: Every error of a verb begins so.
_ERROR = "macaron: "


def threads_of(jobs: int) -> int:
    """The CPU threads of each of several jobs."""
    return max(1, torch.get_num_threads() // jobs)


def train_together(runs: Sequence[tuple[str, Recipe, Path]], jobs: int, say: Callable[[str], None]) -> None:
    """Train runs in processes of their own, ``jobs`` at a time; begun ones are resumed.

    If one fails, the others go on; the error at the end names it. Ctrl-C and SIGTERM stop all of them in good order.

    :param runs: the name, the recipe and the folder of each
    """
    started = _Started(threads_of(min(jobs, len(runs))), say)
    with TemporaryDirectory() as recipes, ThreadPoolExecutor(jobs) as pool:
        futures = []
        for i, (name, recipe, folder) in enumerate(runs):
            file = Path(recipes) / f"{i}.toml"
            write_text(file, write_toml(recipe.to_data()))
            futures.append(pool.submit(started.train, name, ["train", str(file), "--resume", "--out", str(folder)]))
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C as a rule; a second one ends them at once
            started.stop(signal.SIGTERM)
            try:
                wait(futures)
            finally:
                started.stop(signal.SIGKILL)
            raise
    if started.failed:
        said = "".join(f"\n{name}: {message}" for name, message in started.failed.items())
        raise MacaronError(
            f"{len(started.failed)} of {len(runs)} runs failed, the others are kept:{said}\n"
            f"When the cause is removed, continue with: {same_command()}"
        )


class _Started:
    """The processes that have been started.

    :ivar failed: the message of each run that has failed, by its name
    """

    def __init__(self, threads: int, say: Callable[[str], None]) -> None:
        self.failed: dict[str, str] = {}
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self._lock, self._say = threading.Lock(), say
        self._running: list[subprocess.Popen[str]] = []
        self._stopping = False

    def train(self, name: str, arguments: list[str]) -> None:
        """Run a command to its end."""
        with self._lock:
            if self._stopping:
                return
            # In a session of its own Ctrl-C does not reach it, which would come twice: `stop` tells it.
            process = subprocess.Popen(
                [sys.executable, "-m", "macaron", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.append(process)
        assert process.stdout is not None
        last, error = "", ""
        for line in map(str.rstrip, process.stdout):
            last = line or last
            if error or line.startswith(_ERROR):
                error += f"{line}\n"
                continue
            with self._lock:
                self._say(f"{name}: {line}")
        code = process.wait()
        if code and not self._stopping:
            text = error.removeprefix(_ERROR).strip() or f"ended with exit code {code} ({last})"
            self.failed[name] = text
            with self._lock:
                self._say(f"{name}: failed: {text}")

    def stop(self, number: int) -> None:
        """Send a signal to all that are running, and start no more."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                process.send_signal(number)  # does nothing to one that has ended
