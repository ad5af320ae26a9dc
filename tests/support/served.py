"""Real servers on loopback: ``macaron serve`` in a process of its own, over small models."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "compatibility" / "fixtures"
#: A translation model, German to English, and a classifier, both trained on a small grammar.
TRANSLATION, CLASSIFIER = FIXTURES / "translation", FIXTURES / "classifier"
#: Keys of a server that wants some: one that may ask as often as it likes, one that may ask 3 times in a minute.
FREE, SLOW = "the-free-key-123", "the-slow-key-456"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}


@dataclass
class Served:
    """A running server.

    :param url: ``http://127.0.0.1:PORT``, without a slash at its end
    """

    process: "subprocess.Popen[str]"
    url: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 60
    ) -> tuple[int, Any]:
        """The status and the content of an answer, parsed if it is JSON; a body makes a POST of JSON."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers.get_content_type()
        return status, json.loads(content) if kind == "application/json" else content.decode()

    def translate(self, text: str, **more: Any) -> str:
        """A German text in English."""
        status, found = self.ask("/translate", {"q": text, "source": "de", "target": "en", **more})
        assert status == 200, found
        return str(found["translatedText"])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code, and what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def start(*arguments: object, folder: Path | None = None) -> Served:
    """A new server on a free port, ready to answer; it works in a folder."""
    command = [sys.executable, "-m", "macaron", "serve", "--workers", "1", *map(str, arguments), "--port", "0"]
    pipe = subprocess.PIPE
    served = Served(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, cwd=folder))
    assert served.process.stdout is not None
    line = served.process.stdout.readline()
    assert "serving on http://" in line, line + served.stop()[1]
    served.url = line.split()[-1]
    return served


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives. It runs in a thread of its own: playwright leaves a loop running in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def held(*pids: int) -> Iterator[None]:
    """A context in which processes stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def until(true: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


async def post(port: int, path: str, body: Any, connection: Any = None) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the content of an answer to JSON.

    :param connection: reader and writer of a connection, for many requests on one
    """
    reader, writer = connection or await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    writer.write(f"{head}\r\n\r\n".encode() + content)
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    found = await reader.readexactly(int(headers["content-length"]))
    if connection is None:
        writer.close()
    return int(first.split()[1]), headers, found
