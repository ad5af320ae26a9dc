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
        """Show a step while it runs; without a terminal, a line with the amount and the time follows.

        :param name: what is done
        :param unit: what is counted
        :param total: how many there are, if it is known
        """
        # Late: a quarter of a second that a mistake in the call should not cost.
        from rich import progress
        from rich.console import Console

        columns = (
            progress.SpinnerColumn(),
            "{task.description}",
            progress.BarColumn(),
            progress.TextColumn("{task.completed:,.0f} " + unit),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
        )
        hidden = self.quiet or not sys.stderr.isatty()
        start = time.monotonic()
        with progress.Progress(*columns, console=Console(stderr=True, quiet=hidden), disable=hidden) as bar:
            task = bar.add_task(name, total=total)
            yield lambda more=1, /, total=None: bar.update(task, advance=more, total=total)
            done = bar.tasks[0].completed
            bar.update(task, total=done)
        if hidden:
            amount = f"{done:,.0f} {unit}, " if done else ""
            self.say(f"{name}: {amount}{time.monotonic() - start:.1f} s")
