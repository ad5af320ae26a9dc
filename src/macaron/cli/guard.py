"""How a verb ends when a person or a pipe stops it, or when it fails as one of several processes."""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import NoReturn, ParamSpec

import typer

from macaron.errors import Interrupted, ProcessLost

P = ParamSpec("P")
# Seconds to wait before printing: torchrun terminates all processes soon after one fails.
_FOLLOWER, _LOST = 5.0, 10.0


def occupy_stdout() -> None:
    """If stdout is closed (``>&-``), replace it with an unwritable file, so that no other file gets descriptor 1."""
    if sys.stdout is None:
        unwritable = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = open(unwritable, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - for the whole process


def stop_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end a verb as Ctrl-C does; not under torchrun, where processes wait for each other."""
    for number in (signal.SIGTERM, signal.SIGHUP) if os.environ.get("WORLD_SIZE", "1") == "1" else ():
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # timeout sends it twice
    Interrupted.exit_code = 128 + number
    raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command: handle Ctrl-C and a closed pipe here, before typer does."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt as stop:
            raise Interrupted(str(stop) or "stopped by Ctrl-C") from None
        except BrokenPipeError:
            # The reader of our output went away (`macaron ... | head`): not an error of ours, and nothing to say.
            _drop_output()

    return run


def _drop_output() -> None:
    """Let what is still buffered go nowhere, or Python would complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: Exception, message: str, code: int) -> NoReturn:
    """Print the error and exit.

    Under torchrun only one process prints it: rank 0 if all fail, otherwise the failing rank after a delay; a process
    that only lost a peer waits longer.
    """
    rank = int(os.environ.get("RANK", "0")) if os.environ.get("WORLD_SIZE", "1") != "1" else 0
    if rank and isinstance(error, Interrupted):
        sys.exit(code)  # they stop together, and the first one says where
    try:
        time.sleep(_LOST if isinstance(error, ProcessLost) else _FOLLOWER if rank else 0)
    except KeyboardInterrupt:
        sys.exit(code)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    typer.echo(f"macaron: {f'process {rank}: ' if rank else ''}{message}", err=True)
    sys.exit(code)
