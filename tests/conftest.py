"""Settings for all tests, and two quick ways to run the real command: in this process, or in a forked one."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

# The same examples on every run: a test that fails now and then tells nobody what broke it.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A program started in the background of a shell ignores Ctrl-C, and so would the commands that tests stop by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(REPOSITORY / "src"),
    "TOKENIZERS_PARALLELISM": "false",
}


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


@dataclass
class Command:
    """A running command."""

    pid: int
    output: Path
    server: "Server" = field(repr=False)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        return int(self.server.ask(wait=self.pid)["code"])

    def until(self, path: Path, lines: int) -> None:
        """Wait until a file has at least this many lines."""
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline, self.text
            time.sleep(0.001)

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""


class Server:
    """Forks ``macaron`` commands (see server.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def ask(self, **values: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(values) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def start(self, *arguments: object, **extra: Any) -> Command:
        """Start a command; see server.py for what can be asked besides."""
        self.count += 1
        output = self.folder / f"output-{self.count}"
        asked = self.ask(arguments=[str(a) for a in arguments], output=str(output), **extra)
        return Command(asked["pid"], output, self)

    def group(self, world: int, *arguments: object, last: dict[str, Any] | None = None) -> list[Command]:
        """Start a command in several processes, as torchrun does.

        :param last: what to ask for the last process besides, see server.py
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return [
            self.start(
                *arguments,
                environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                **(last or {} if rank == world - 1 else {}),
            )
            for rank in range(world)
        ]

    def run_group(self, world: int, *arguments: object, code: int = 0) -> str:
        """Run a command in several processes to its end; returns what they printed."""
        commands = self.group(world, *arguments)
        codes = [command.wait() for command in commands]
        text = "".join(command.text for command in commands)
        assert codes == [code] * world, text
        return text

    def run(self, *arguments: object, code: int = 0, **extra: Any) -> str:
        """Run a command to its end; returns what it printed."""
        command = self.start(*arguments, **extra)
        found = command.wait()
        assert found == code, command.text
        return command.text


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Real processes, quickly started."""
    made = Server(tmp_path_factory.mktemp("outputs"))
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait()
