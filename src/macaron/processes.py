"""Long jobs: worker processes (the one spawner, for preparing data and for fine-tuning), and reporting of progress."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, Self, TypeVar

from macaron.errors import MacaronError, require

Item = TypeVar("Item")
Returned = TypeVar("Returned")

#: What a step calls as it advances: ``advance(count=1, total=None)`` reports ``count`` more units, of ``total`` in all.
Advance = Callable[..., None]
_GRACE = 30.0  # seconds that a task has to end after an error, before its process is terminated


class Workers:
    """Processes that run tasks, started with the first of them. Use it in a ``with`` statement.

    They are spawned, not forked: a fork of a process with threads (those of `tokenizers`) may hang. Ctrl-C is left to
    the parent; if the parent dies, so do they.

    :param set_up: called once in each process with its index, from 0
    """

    _stopping: ClassVar[Any] = None  # in a worker process: the event that asks it to stop

    def __init__(self, count: int | None = None, set_up: Callable[[int], None] | None = None) -> None:
        self.count = available_cores() if count is None else count
        require(self.count >= 1, f"the number of workers must be at least 1, not {self.count}")
        self._set_up = set_up
        self._context = multiprocessing.get_context("spawn")
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []

    def map(self, function: Callable[[Item], Returned], tasks: Iterable[Item]) -> Generator[Returned, None, None]:
        """Yield the results in the order of the tasks; few are in memory. One task, or one worker, needs no process."""
        tasks = iter(tasks)
        waiting = list(islice(tasks, 2))
        if self.count == 1 or len(waiting) < 2:
            for task in chain(waiting, tasks):
                yield function(task)
            return
        running: deque[Future[Returned]] = deque()
        try:
            for task in chain(waiting, tasks):
                running.append(self.submit(function, task))
                if len(running) > 2 * self.count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool:
            raise MacaronError("a worker process was killed, maybe for lack of memory. Try --workers 1") from None
        finally:  # an error, or the caller wants no more
            for future in running:
                future.cancel()

    def submit(self, function: Callable[..., Returned], *arguments: Any) -> Future[Returned]:
        """Run a function in a process; a lost process raises `BrokenProcessPool` in all results."""
        if self._pool is None:
            self._pool = self._start_pool()
        return self._pool.submit(function, *arguments)

    def _start_pool(self) -> ProcessPoolExecutor:
        self._stop = self._context.Event()
        indices = self._context.SimpleQueue()
        for index in range(self.count):
            indices.put(index)
        before = multiprocessing.active_children()
        # Ctrl-C goes to all processes of a terminal. A process that is just starting would answer it with a traceback,
        # so it is blocked for a moment; later they ignore it. (The tracker would unblock it if it started now.)
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            start = (self._stop, indices, self._set_up)
            pool = ProcessPoolExecutor(self.count, mp_context=self._context, initializer=_start, initargs=start)
            for _ in range(self.count):  # one process is started for each
                pool.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._processes = [child for child in multiprocessing.active_children() if child not in before]
        return pool

    def lost(self) -> int | None:
        """The exit code of a process that was lost."""
        for process in self._processes:
            process.join(_GRACE)
        codes = [process.exitcode for process in self._processes]
        return next((code for code in codes if code not in (0, None, -signal.SIGTERM)), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        if kind is not None:
            self._stop.set()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        for process in self._processes:
            process.join(_GRACE)
            process.terminate()  # does nothing to one that has ended


def check_stop() -> None:
    """Raise KeyboardInterrupt in a worker that was asked to end its task soon."""
    if Workers._stopping is not None and Workers._stopping.is_set():
        raise KeyboardInterrupt


def _start(stopping: Any, indices: Any, set_up: Callable[[int], None] | None) -> None:
    Workers._stopping = stopping
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process a core: threads would only slow them down
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()
    if set_up is not None:
        set_up(indices.get())


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def available_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Progress:
    """The steps of a long job: a moving bar on a terminal, plain lines elsewhere. Both go to stderr."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def say(self, message: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, name: str, unit: str = "pairs", total: int | None = None) -> Iterator[Advance]:
        """Show a step while it runs; without a terminal, a line with the amount and the time follows."""
        # Late: a quarter of a second that a mistake in the call should not cost.
        from rich import progress
        from rich.console import Console

        amount = progress.TextColumn("{task.completed:,.0f} " + unit)
        columns = (*progress.Progress.get_default_columns(), amount, progress.TimeElapsedColumn())
        hidden = self.quiet or not sys.stderr.isatty()
        start = time.monotonic()
        with progress.Progress(*columns, console=Console(stderr=True, quiet=hidden), disable=hidden) as bar:
            task = bar.add_task(name, total=total)
            yield lambda more=1, /, total=None: bar.update(task, advance=more, total=total)
            done = bar.tasks[0].completed
            bar.update(task, total=done)
        if hidden:
            self.say(f"{name}: {f'{done:,.0f} {unit}, ' if done else ''}{time.monotonic() - start:.1f} s")
