"""The real command in real processes, forked from one that has imported torch already: a start takes milliseconds."""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    "TOKENIZERS_PARALLELISM": "false",
}


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

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="macaron-tests-")
        self.folder, self.count = Path(self._folder.name), 0
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

    def group(
        self, world: int, *arguments: object, last: dict[str, Any] | None = None, recorded: str = ""
    ) -> list[Command]:
        """Start a command in several processes, as torchrun does.

        :param last: what to ask for the last process besides, see server.py, as is ``recorded``
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return [
            self.start(
                *arguments,
                environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                **{"recorded": recorded, **(last or {} if rank == world - 1 else {})},
            )
            for rank in range(world)
        ]

    def run_group(self, world: int, *arguments: object, code: int = 0, **extra: Any) -> str:
        """Run a command in several processes to its end; returns what they printed."""
        commands = self.group(world, *arguments, **extra)
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

    def end(self) -> None:
        """End the server and remove what its commands printed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self._folder.cleanup()


@cache
def server() -> Server:
    """The server of this test process, which ends with it."""
    started = Server()
    atexit.register(started.end)
    return started


def macaron(
    *arguments: object, text: bytes = b"", cwd: Path | None = None, limit: tuple[str, int] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run ``macaron`` to its end.

    :param text: its standard input
    :param limit: a limit of the system, such as ``("RLIMIT_FSIZE", 10_000)``
    """
    used = server()
    files = {name: used.folder / f"{name}-{used.count + 1}" for name in ("text", "errors")}
    files["text"].write_bytes(text)
    extra: dict[str, Any] = {} if limit is None else {"limit": list(limit)}
    extra |= {"text": str(files["text"]), "errors": str(files["errors"]), "cwd": str(cwd or ".")}
    command = used.start(*arguments, **extra)
    code = command.wait()
    found = [path.read_bytes() if path.exists() else b"" for path in (command.output, files["errors"])]
    return subprocess.CompletedProcess(["macaron", *map(str, arguments)], code, *found)


def macaron_text(*arguments: object, text: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """The same with text for bytes."""
    done = macaron(*arguments, text=text.encode(), **options)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
