"""Settings for all tests, and two quick ways to run the real command: in this process, or in a forked one."""

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

import forked
from forked import Server

# The same examples on every run: a test that fails now and then tells nobody what broke it.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A program started in the background of a shell ignores Ctrl-C, and so would the commands that tests stop by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Where MACARON_FORBID_SKIPS is set (CI), a skipped golden or browser test is a failure."""
    outcome = yield
    report = outcome.get_result()
    guarded = any(item.get_closest_marker(name) for name in ("golden", "browser"))
    if report.skipped and guarded and os.environ.get("MACARON_FORBID_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, which CI forbids for golden and browser tests"


@pytest.fixture
def shared() -> Path:
    """The folder of corpora and recorded numbers beside the project; a user's machine has none."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared folder here")
    return SHARED


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def macaron() -> Callable[..., Done]:
    """The real command, called in this process: starting a new one takes longer than most tests."""

    def run(*arguments: object) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code = 0
        from macaron.cli import main

        with (
            mock.patch.object(sys, "argv", ["macaron", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]

    return run


@pytest.fixture(scope="session")
def server() -> Server:
    """Real processes, quickly started."""
    return forked.server()
