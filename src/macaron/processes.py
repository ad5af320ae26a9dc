"""Work on all cores, in order: results come in the order of the tasks, whatever the number of processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self, TypeVar

from macaron.device import available_cores
from macaron.errors import MacaronError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers:
    """Some processes, started when there is more than one task to do. Use it in a ``with`` statement.

    They are spawned, not forked: a fork of a process with threads (those of `tokenizers`) may hang, and a fresh
    one holds no copy of what the parent has in memory. Programs that call it need the usual
    ``if __name__ == "__main__":``.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = available_cores() if count is None else count
        if self.count < 1:
            raise MacaronError(f"the number of workers must be at least 1, not {self.count}")
        self._pool: ProcessPoolExecutor | None = None

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Generator[Result, None, None]:
        """Yield the results in the order of the tasks; few tasks are in memory at any time."""
        tasks = iter(tasks)
        waiting = list(islice(tasks, 2))
        if self.count == 1 or len(waiting) < 2:
            for task in chain(waiting, tasks):
                yield function(task)
            return
        pool = self._start_pool()
        running: deque[Future[Result]] = deque()
        try:
            for task in chain(waiting, tasks):
                running.append(pool.submit(function, task))
                if len(running) > 2 * self.count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool:
            raise MacaronError(
                "a worker process was killed, probably because memory ran out. Try again with fewer: --workers 1"
            ) from None
        finally:  # an error, or a caller who wants no more
            for future in running:
                future.cancel()

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Ctrl-C goes to all processes of a terminal. Those that are just starting would answer it with a traceback,
            # so it waits for a moment; later they ignore it. (The tracker would end the wait if it started now.)
            resource_tracker.ensure_running()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(self.count, mp_context=context, initializer=_start)
                for _ in range(self.count):  # one process is started for each
                    self._pool.submit(os.getpid)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self._pool

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)


def _start() -> None:
    """Set up a worker: Ctrl-C is the parent's business, and nobody outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process a core; threads would only get in their way
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
