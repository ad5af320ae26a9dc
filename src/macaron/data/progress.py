"""Reporting the progress of a longer job: a moving bar on a terminal, plain lines elsewhere. Both go to stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """What a step calls as it advances."""

    def __call__(self, count: int = 1, /, total: int | None = None) -> None:
        """Report ``count`` more units."""


class Progress:
    """The steps of a longer job.

    :param quiet: show nothing at all
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def say(self, message: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, name: str, unit: str = "pairs", total: int | None = None) -> Iterator[Advance]:
        """Show a step while it runs; without a terminal, a line with the amount and the time follows."""
        if not self.quiet and sys.stderr.isatty():
            with _bar(name, unit, total) as advance:
                yield advance
            return
        done = 0
        start = time.monotonic()

        def count(more: int = 1, /, total: int | None = None) -> None:
            nonlocal done
            done += more

        yield count
        amount = f"{done:,} {unit}, " if done else ""
        self.say(f"{name}: {amount}{time.monotonic() - start:.1f} s")


@contextmanager
def _bar(name: str, unit: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    amount = TextColumn("{task.completed:,.0f} " + unit)
    columns = (SpinnerColumn(), "{task.description}", BarColumn(), amount, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(name, total=total)
        yield lambda more=1, /, total=None: display.update(task, advance=more, total=total)
        display.update(task, total=display.tasks[0].completed)
