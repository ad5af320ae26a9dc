"""A queue of jobs over devices: in this process if there is one, otherwise a process for each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from macaron.errors import MacaronError, ProcessLost
from macaron.tasks.finetune import RunStopped
from macaron.tasks.finetune_glue import GlueWorker, Job, WorkerSettings
from macaron.tasks.finetune_results import Record

_PATIENCE = 0.2  # seconds between two looks at the signals


def run_jobs(
    jobs: list[Job],
    settings: WorkerSettings,
    best: Callable[[str], float | None],
    finished: Callable[[Job, Record], None],
    stop: Callable[[], bool],
    advance: Callable[[int], None],
) -> None:
    """Do all jobs; raises `RunStopped` as soon as ``stop`` says so.

    :param best: the best score of a task so far
    :param finished: called in this process with every record, in the order in which runs end
    :param advance: called with numbers of updates
    """
    if len(settings.devices) == 1 or len(jobs) == 1:
        worker = GlueWorker(settings)
        for job in jobs:
            finished(job, worker.work(job, best(job.task), stop, lambda: advance(1)))
        return
    with _started(settings, min(len(settings.devices), len(jobs))) as crew:
        _share_out(jobs, crew, best, finished, stop, advance)


def _share_out(
    jobs: list[Job],
    crew: dict[Connection, SpawnProcess],
    best: Callable[[str], float | None],
    finished: Callable[[Job, Record], None],
    stop: Callable[[], bool],
    advance: Callable[[int], None],
) -> None:
    waiting = list(reversed(jobs))
    busy: dict[Connection, Job] = {}

    def give(line: Connection) -> None:
        if waiting:
            busy[line] = job = waiting.pop()
            line.send((job, best(job.task)))

    for line in crew:
        give(line)
    while busy:
        if stop():
            raise RunStopped
        for line in [line for line in wait(list(busy), timeout=_PATIENCE) if isinstance(line, Connection)]:
            job = busy.pop(line)
            try:
                record, error = line.recv()
            except (EOFError, OSError):
                crew[line].join()
                raise ProcessLost(
                    f"the process that ran {job.name} has ended (exit code {crew[line].exitcode}); -9 usually means "
                    "that memory ran out. The finished runs are kept: go on with --resume."
                ) from None
            if error is not None:
                raise MacaronError(f"{job.name}: {error}")
            finished(job, record)
            advance(record["updates"])
            give(line)


@contextmanager
def _started(settings: WorkerSettings, count: int) -> Iterator[dict[Connection, SpawnProcess]]:
    """The processes and the lines to them."""
    context = multiprocessing.get_context("spawn")
    stopping = context.Event()
    crew: dict[Connection, SpawnProcess] = {}
    # Ctrl-C goes to all processes of a terminal; those that are starting must not answer it with a traceback.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for index in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(settings, index, count, theirs, stopping))
            process.start()
            theirs.close()
            crew[ours] = process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield crew
    finally:
        stopping.set()  # for one that is in the middle of a run
        for line in crew:
            line.close()  # for one that waits for a job
        for process in crew.values():
            process.join(30)
            if process.is_alive():
                process.terminate()
                process.join()


def _serve(settings: WorkerSettings, index: int, count: int, line: Connection, stopping: Any) -> None:
    """A process: takes jobs until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's business
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _leave_with_parent()
    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    worker: GlueWorker | None = None
    with suppress(EOFError, BrokenPipeError, RunStopped):
        while True:
            job, best = line.recv()
            try:
                worker = worker or GlueWorker(settings, index)
                answer: tuple[Record | None, str | None] = (worker.work(job, best, stopping.is_set), None)
            except (MacaronError, OSError) as error:  # a full disk, a file taken away
                answer = (None, str(error))
            line.send(answer)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def leave() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
