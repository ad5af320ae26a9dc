"""Clients that vanish, dawdle or send rubbish, workers that die, servers that are told to leave."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from macaron.serve.app import _listen
from macaron.serve.engine import ServeSettings
from served import CLASSIFIER, ENVIRONMENT, FIXTURES, TRANSLATION, Served, children, held, until

SENTENCES = (FIXTURES / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()
SENTENCE = SENTENCES[0]


def request(body: bytes, path: str = "/translate", kind: str = "application/json", length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def text(words: str) -> bytes:
    return json.dumps({"q": words, "source": "de", "target": "en"}).encode()


def send(server: Served, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(data)
    return connection


def answer(connection: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def metric(server: Served, name: str) -> float:
    lines = server.ask("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.slow
def test_clients_that_vanish_take_their_work_along(start_server: Callable[..., Served]):
    server = start_server(TRANSLATION, "--queue", 500)
    [worker] = children(server.process.pid)
    with held(worker):
        connections = [send(server, request(text("\n".join(SENTENCES[:20])))) for _ in range(200)]
        until(lambda: metric(server, "macaron_waiting_sentences") > 20 * 198, "they have not come")
        for connection in connections:
            connection.close()
        until(lambda: metric(server, "macaron_waiting_sentences") == 0, "their work is still there")
        gone = 'macaron_answers_total{path="/translate",status="499"}'
        until(lambda: metric(server, gone) == 200, "they are not counted")
    assert server.translate(SENTENCE)
    # Those, too, who go before they have sent everything.
    for data in (b"", b"POST /tra", request(text(SENTENCE), length=10_000)):
        send(server, data).close()
    assert server.translate(SENTENCE)
    assert server.stop() == (0, "")


def test_who_is_refused_while_sending_reads_the_answer(start_server: Callable[..., Served]):
    """On a connection that stays open; what comes after it is answered as usual."""
    server = start_server(TRANSLATION, "--queue", 1)
    with held(*children(server.process.pid)):
        waiting = [send(server, request(text(SENTENCE)))]
        until(lambda: metric(server, "macaron_running_sentences") == 1, "the worker has nothing")
        waiting.append(send(server, request(text(SENTENCE))))
        until(lambda: metric(server, "macaron_waiting_sentences") == 1, "nothing waits")
        large = request(text("x" * 3_000_000)).replace(b"Connection: close\r\n", b"")
        said = answer(send(server, large + b"GET /health HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"))
        assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"503", b"200"]
        assert server.ask("/detect", {"q": SENTENCE})[0] == 200  # which needs no worker
    assert all(b"200 OK" in answer(each) for each in waiting)


def test_an_answer_leaves_at_once():
    """Its second part does not wait for an acknowledgement of the first."""
    with _listen(ServeSettings(port=0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def deep(levels: int) -> bytes:
    return b'{"q":' + b"[" * levels + b"]" * levels + b"}"


MALFORMED = {
    "no JSON": request(b"{"),
    "no object": request(b"[1, 2]"),
    "not UTF-8": request(b'{"q": "\xff\xfe", "source": "de", "target": "en"}'),
    "another encoding": request('{"q": "ä"}'.encode("utf-16")),
    "lone surrogate": request(b'{"q": "\\ud800", "source": "de", "target": "en"}'),
    "NUL": request(b'{"q": "\\u0000", "source": "de", "target": "en"}'),
    "deep": request(deep(100_000)),
    "a number of many digits": request(b'{"q": ' + b"9" * 100_000 + b"}"),
    "NaN": request(b'{"q": NaN}'),
    "wrong types": request(b'{"q": {"a": [1, null]}, "source": 3, "target": true}'),
    "nothing": request(b""),
    "a form of rubbish": request(b"%%%=%zz&q", kind="application/x-www-form-urlencoded"),
    "no boundary": request(b"--x\r\n", kind="multipart/form-data"),
    "broken parts": request(b"--x\r\nContent-Disp", kind="multipart/form-data; boundary=x", path="/translate_file"),
    "a length that is none": b"POST /translate HTTP/1.1\r\nHost: t\r\nContent-Length: many\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a header without end": b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000,
    "an unknown method": b"BREW /translate HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_requests_are_refused(server: Served, kind: str):
    for _ in range(50):
        status = answer(send(server, MALFORMED[kind])).split(b" ")[1:2]
        assert status == [] or status[0][:1] == b"4", status
    assert server.ask("/health") == (200, {"status": "ok"})


def test_there_are_no_web_sockets(server: Served):
    """Whichever packages are installed: a connection stays one of HTTP."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n"
    connection = send(server, b"GET /health HTTP/1.1\r\nHost: test\r\n" + upgrade + b"\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    connection.close()


@pytest.mark.slow
def test_oversized_bodies_are_refused(start_server: Callable[..., Served]):
    server = start_server(TRANSLATION, "--text-limit", 1000)
    large = text("x" * (5 << 20))
    chunked = b"POST /translate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    for number in range(50):
        data = request(large) if number % 2 else chunked + chunk * 6 + b"0\r\n\r\n"
        assert answer(send(server, data)).startswith(b"HTTP/1.1 413 ")
    for _ in range(50):
        assert answer(send(server, request(text("x" * 2000)))).startswith(b"HTTP/1.1 400 ")
    assert server.translate(SENTENCE)
    assert server.stop() == (0, "")


@pytest.mark.slow
def test_clients_that_dawdle_are_cut_off(start_server: Callable[..., Served]):
    server = start_server(TRANSLATION, "--patience", 1)
    whole = request(text(SENTENCE)).replace(b"Connection: close\r\n", b"")
    slow = [send(server, data) for data in (b"", b"POST /translate HT", whole[:-5], b"GET /health HTTP/1.1\r\n") * 10]
    # One that has had an answer, and is slow with its next request.
    second = send(server, whole)
    assert second.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    second.sendall(whole[:30])
    assert server.translate(SENTENCE)  # the others are served meanwhile
    for connection in [*slow, second]:
        assert b" 200 " not in answer(connection)
    assert server.translate(SENTENCE)
    assert server.stop() == (0, "")


def in_background(function: Callable[[], Any]) -> Callable[[], Any]:
    """Begin something; what is returned waits for its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()

    def result() -> Any:
        thread.join(timeout=60)
        return found[0]

    return result


def test_a_killed_worker_is_replaced(start_server: Callable[..., Served]):
    server = start_server(TRANSLATION, CLASSIFIER)
    [worker] = children(server.process.pid)
    with held(worker):
        mine = in_background(lambda: server.ask("/translate", {"q": SENTENCE, "source": "de", "target": "en"}))
        until(lambda: metric(server, "macaron_running_sentences") == 1, "no request")
        other = in_background(lambda: server.translate(SENTENCES[1]))
        until(lambda: metric(server, "macaron_waiting_sentences") == 1, "no second request")
        os.kill(worker, signal.SIGKILL)
        until(lambda: server.ask("/health")[0] == 503, "nobody has noticed")
    assert mine()[0] == 503
    assert other()
    assert server.ask("/health") == (200, {"status": "ok"})
    assert children(server.process.pid) != [worker]
    assert server.stop() == (0, "")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_as_soon_as_the_system_allows_it(start_server: Callable[..., Served]):
    server = start_server()
    pid, errors = server.process.pid, server.process.stderr
    assert errors is not None
    [worker] = children(pid)
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) - 1, limits[1]))
    os.kill(worker, signal.SIGKILL)
    os.set_blocking(errors.fileno(), False)
    said = b""

    def told() -> bool:
        nonlocal said
        with suppress(BlockingIOError):
            said += os.read(errors.fileno(), 1 << 16)
        return b"a worker cannot be started: [Errno 24] Too many open files" in said

    until(told, "nobody says why there is no worker")
    os.set_blocking(errors.fileno(), True)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert server.ask("/health")[0] == 503
    until(lambda: server.ask("/health")[0] == 200, "it is not tried again")
    assert server.translate(SENTENCE)
    assert server.stop() == (0, "")


def test_sigterm_finishes_what_runs(start_server: Callable[..., Served]):
    server = start_server()
    [worker] = children(server.process.pid)
    with held(worker):
        running = in_background(lambda: server.translate(SENTENCE))
        until(lambda: metric(server, "macaron_running_sentences") == 1, "no request")
        server.process.send_signal(signal.SIGTERM)
        os.kill(worker, signal.SIGTERM)  # as a supervisor does that ends all processes of a service

        def refused() -> bool:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
            except ConnectionRefusedError:
                return True
            return False

        until(refused, "it still accepts")
        assert server.process.poll() is None
    assert running()
    assert server.stop() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.slow
def test_it_leaves_within_its_limit(start_server: Callable[..., Served], number: int):
    server = start_server(TRANSLATION, "--grace", 1)
    [worker] = children(server.process.pid)
    with held(worker):  # for ever, as far as the server knows
        waiting = send(server, request(text(SENTENCE)))
        until(lambda: metric(server, "macaron_running_sentences") == 1, "no request")
        server.process.send_signal(number)
        assert server.process.wait(timeout=60) == 0
        told = answer(waiting)
        assert told.startswith(b"HTTP/1.1 503 "), told
        assert b'{"error":"the server is being stopped' in told
    assert "Traceback" not in server.stop()[1]
    until(lambda: not os.path.exists(f"/proc/{worker}"), "the worker is still there")


#: The command, while a thread of the server works for ever.
BESIDE_A_THREAD = """
import asyncio, sys, threading
from macaron.cli import main
from macaron.serve import app

async def serve(*arguments, serve=app.serve):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    await serve(*arguments)

app.serve = serve
main()
"""


# The process gets its signal as soon as it has said that it serves, before uvicorn does anything.
AT_ONCE = """
import os, signal, uvicorn
from macaron.cli import main

def serve(*arguments, serve=uvicorn.Server.serve, **settings):
    os.kill(os.getpid(), signal.SIGTERM)
    return serve(*arguments, **settings)

uvicorn.Server.serve = serve
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [BESIDE_A_THREAD, AT_ONCE])
def test_sigterm_ends_it(script: str):
    """At once, and beside threads that cut long documents, whose clients have had their 503."""
    command = [sys.executable, "-c", script, "serve", str(TRANSLATION), "--workers", "1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as run:
        assert run.stdout is not None
        assert "serving on" in run.stdout.readline()
        if script is BESIDE_A_THREAD:
            run.terminate()
        try:
            assert run.wait(timeout=60) == 0
        finally:
            run.kill()


@pytest.mark.slow
def test_a_worker_ends_with_its_server(start_server: Callable[..., Served]):
    server = start_server()
    [worker] = children(server.process.pid)
    server.process.kill()
    until(lambda: not os.path.exists(f"/proc/{worker}"), "the worker is still there")
