"""``macaron serve`` under load: throughput against the Translator, overload, faults.

    python benchmarks/serve.py --out docs/results/serve.json
    python benchmarks/serve.py --device cuda --out docs/results/gpu/serve.json
    python benchmarks/serve.py MODEL --source FILE --out F.json

On a GPU there are 64 clients instead of 16, and only the throughput is measured unless --parts says otherwise.
Without a model one is trained first on the demo's corpus: 3 layers of width 256, which takes some minutes, or on a
GPU macaron-small. All parts run on this machine: the server, its clients, and the Translator in a process of its own,
which waits meanwhile.

    throughput   clients that send one sentence after another, each on a connection of its own, against `Translator`
                 with the same sentences in batches in the order of their arrival, and one by one. Rounds take turns;
                 the ratio is the median of those within a round. On a CPU all translations have to be the same;
                 on a GPU, whose products in half precision depend on the batch, those that differ are counted
    overload     requests at three times that rate, each on a new connection, whether or not others have been answered;
                 memory of all processes of the server meanwhile; then the throughput once more
    faults       clients that vanish in the middle of a request, malformed and oversized bodies, clients that never
                 finish a request, a worker that is killed; while others ask as usual, and should not notice
"""

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common import command, environment, number, print_table, write_json

from macaron.files import read_lines
from macaron.shipped import write_demo_corpus

#: Seconds of a request, as the server is told.
DEADLINE = 10
#: Of each fault.
VANISHING, MALFORMED, DAWDLING = 200, 50, 50


def peer(model: Path, device: str, int8: bool) -> None:
    """The process of the Translator: lines in, how many at a time; seconds and translations out."""
    from macaron.decode import Translator

    translator = Translator(model, device=device, int8=int8)
    print(json.dumps({"device": translator.model.device.type}), flush=True)
    for line in sys.stdin:
        lines, size = json.loads(line)
        start = time.perf_counter()
        found = [text for i in range(0, len(lines), size) for text in translator.translate(lines[i : i + size])]
        print(json.dumps([time.perf_counter() - start, found]), flush=True)


class Program:
    """A program that answers lines, or says where it serves."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return line or sys.exit("a program ended: see above")

    def ask(self, question: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.read())

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Client:
    """Clients of a server.

    :param languages: source and target
    """

    def __init__(self, port: int, languages: Sequence[str]) -> None:
        self.port, self.languages = port, languages

    def body(self, text: str) -> bytes:
        return json.dumps({"q": text, "source": self.languages[0], "target": self.languages[1]}).encode()

    async def connect(self) -> Connection:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, connection: Connection, data: bytes) -> tuple[int, bytes]:
        """The status and the content of an answer."""
        reader, writer = connection
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length: ")[2].split("\r\n")[0]
        return int(head.split()[1]), await reader.readexactly(int(length or 0))

    def post(self, body: bytes, path: str = "/translate", length: int | None = None) -> bytes:
        size = len(body) if length is None else length
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}"
        return f"{head}\r\n\r\n".encode() + body

    async def translate(self, text: str, connection: Connection | None = None) -> tuple[int, str]:
        """The status, and the translation."""
        used = connection or await self.connect()
        status, content = await self.send(used, self.post(self.body(text)))
        if connection is None:
            used[1].close()
        return status, json.loads(content).get("translatedText", "")

    async def one_by_one(self, texts: Sequence[str], clients: int) -> tuple[float, list[str], list[float]]:
        """Seconds of all, the translations, and the seconds of each; every client takes the next text."""
        found, times, left = [""] * len(texts), [0.0] * len(texts), iter(range(len(texts)))

        async def work() -> None:
            connection = await self.connect()
            for index in left:
                start = time.perf_counter()
                status, found[index] = await self.translate(texts[index], connection)
                times[index] = time.perf_counter() - start
                if status != 200:
                    sys.exit(f"the server answered {status} to sentence {index + 1}")
            connection[1].close()

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(clients)))
        return time.perf_counter() - start, found, times


def percentile(values: Sequence[float], share: float) -> float | None:
    """In milliseconds."""
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None


def throughput(
    client: Client, translator: Program, texts: list[str], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The figures after each round."""
    rounds: list[dict[str, float]] = []
    times: list[float] = []
    some = texts[: max(1, min(200 if options.device == "cpu" else 50, len(texts) // 4))]
    different = 0
    for _ in range(options.rounds):
        asyncio.run(client.one_by_one(texts[: 2 * options.clients], options.clients))  # both are warm
        translator.ask((texts[:16], 16))
        seconds, wanted = translator.ask((texts, options.clients))
        ours, found, each = asyncio.run(client.one_by_one(texts, options.clients))
        alone, _ = translator.ask((some, 1))
        different += sum(a != b for a, b in zip(found, wanted, strict=True))
        if different and options.device == "cpu":
            sys.exit("the server translates otherwise than the Translator")
        times += each
        rounds.append(
            {
                "server": len(texts) / ours,
                "translator_batches": len(texts) / seconds,
                "translator_alone": len(some) / alone,
                "ratio": seconds / ours,
                "ratio_alone": alone / len(some) * len(texts) / ours,
            }
        )
        result: dict[str, Any] = {
            name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]
        }
        result |= {"clients": options.clients, "sentences": len(texts), "identical": not different, "rounds": rounds}
        result["different"] = different
        yield result | {"p50_ms": percentile(times, 0.5), "p95_ms": percentile(times, 0.95)}


def memory(pid: int) -> float:
    """MiB of a process and those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    pages = sum(int(Path(f"/proc/{each}/statm").read_text(encoding="ascii").split()[1]) for each in (pid, *children))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def overload(client: Client, pid: int, texts: list[str], rate: float, seconds: float) -> dict[str, Any]:
    answers: list[tuple[int, float]] = []
    sizes: list[float] = []

    async def ask(text: str) -> None:
        start = time.perf_counter()
        try:
            status, _ = await asyncio.wait_for(client.translate(text), 6 * DEADLINE)
        except TimeoutError:
            status = 0
        except (OSError, asyncio.IncompleteReadError):
            status = -1
        answers.append((status, time.perf_counter() - start))

    loop, asked = asyncio.get_running_loop(), []
    gc.disable()  # with torch in this process it would stop all clients for a third of a second
    begin = loop.time()
    while (now := loop.time() - begin) < seconds:
        while len(asked) < now * rate:
            asked.append(asyncio.create_task(ask(texts[len(asked) % len(texts)])))
        if len(sizes) < now * 4:
            sizes.append(memory(pid))
        await asyncio.sleep(0.002)
    await asyncio.gather(*asked)
    gc.enable()
    good = [time for status, time in answers if status == 200]
    refused = [time for status, time in answers if status == 503]
    third = max(1, len(sizes) // 3)
    return {
        "requests_per_second": round(rate, 1),
        "seconds": seconds,
        "requests": len(answers),
        "statuses": dict(Counter(str(status) for status, _ in answers)),
        "hanging": sum(status == 0 for status, _ in answers),
        "refused_p50_ms": percentile(refused, 0.5),
        "refused_p99_ms": percentile(refused, 0.99),
        "done_per_second": round(len(good) / seconds, 1),
        "done_p50_ms": percentile(good, 0.5),
        "done_p99_ms": percentile(good, 0.99),
        "done_max_ms": percentile(good, 1.0),
        "deadline_s": DEADLINE,
        "memory_mib": {
            "start": sizes[0],
            "second_third": max(sizes[third : 2 * third + 1]),
            "end": max(sizes[-third:]),
        },
    }


def malformed(client: Client, text: str) -> dict[str, bytes]:
    good = client.body(text)
    chunked = b"POST /translate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    return {
        "no JSON": client.post(good[:-1]),
        "not UTF-8": client.post(good.replace(b": ", b": \xff", 1)),
        "deep": client.post(b"[" * 100_000),
        "wrong types": client.post(b'{"q": {"a": 1}, "source": [], "target": 7}'),
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        "endless header": b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000,
        "oversized": client.post(client.body("x" * (6 << 20))),
        "oversized in chunks": chunked + (b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n") * 6 + b"0\r\n\r\n",
    }


async def faults(client: Client, pid: int, texts: list[str]) -> dict[str, Any]:
    """What well-behaved clients notice while others do not behave."""
    result: dict[str, Any] = {}

    async def during(name: str, work: Any) -> None:
        """Ask as usual, with four clients, during some work and a little longer."""
        over, statuses = False, Counter[int]()

        async def usual(first: int) -> None:
            index = first
            while not over:
                statuses[(await client.translate(texts[index % len(texts)]))[0]] += 1
                index += 4

        others = [asyncio.create_task(usual(i)) for i in range(4)]
        said = await work
        await asyncio.sleep(0.5)
        over = True
        await asyncio.gather(*others)
        lost = sum(count for status, count in statuses.items() if status != 200)
        result[name] = {"usual_requests": statuses.total(), "lost": lost, **(said or {})}

    async def vanish() -> None:
        connections = [await client.connect() for _ in range(VANISHING)]
        for _, writer in connections:
            writer.write(client.post(client.body("\n".join(random.sample(texts, min(20, len(texts)))))))
        await asyncio.sleep(0.2)
        for _, writer in connections:
            writer.close()

    async def send_malformed() -> dict[str, Any]:
        statuses: dict[str, dict[str, int]] = {}
        for name, data in malformed(client, texts[0]).items():
            counts = Counter[str]()
            for _ in range(MALFORMED):
                connection = await client.connect()
                try:
                    status = str((await asyncio.wait_for(client.send(connection, data), 60))[0])
                except (OSError, asyncio.IncompleteReadError):
                    status = "closed"
                counts[status] += 1
                connection[1].close()
            statuses[name] = dict(counts)
        return {"statuses": statuses}

    async def dawdle() -> None:
        connections = [await client.connect() for _ in range(DAWDLING)]
        for index, (_, writer) in enumerate(connections):
            writer.write((b"POST /trans", client.post(b"{", length=100), b"")[index % 3])
        # The server cuts them off.
        await asyncio.gather(
            *(asyncio.wait_for(reader.read(), 120) for reader, _ in connections), return_exceptions=True
        )

    async def kill() -> dict[str, Any]:
        worker = int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])
        start = time.perf_counter()
        os.kill(worker, signal.SIGKILL)
        while (await client.translate(texts[0]))[0] != 200:
            await asyncio.sleep(0.05)
        return {"seconds_until_the_next_translation": round(time.perf_counter() - start, 2)}

    await during("vanishing clients", vanish())
    await during("malformed requests", send_malformed())
    await during("dawdling clients", dawdle())
    await during("killed worker", kill())
    return result


def trained(folder: Path, quick: bool, gpu: bool) -> Path:
    """A model that was trained for a short time."""
    write_demo_corpus(folder / "runs" / "demo-corpus")
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "encoder_layers": 3, "decoder_layers": 3}
    settings = [f"--set=model.{name}={32 if quick and 'size' in name else size}" for name, size in sizes.items()]
    if gpu:
        settings = ["--set=model.preset=macaron-small", "--set=train.learning_rate=0.001"]
    updates = [
        f"--set=train.{name}={20 if quick else 400}" for name in ("max_updates", "validate_every", "checkpoint_every")
    ]
    for arguments in (["prepare", "demo"], ["train", "demo", "--out", "run", *settings, *updates]):
        done = subprocess.run([sys.executable, "-m", "macaron", *arguments], cwd=folder, check=False, stdout=sys.stderr)
        if done.returncode:
            sys.exit(done.returncode)
    return folder / "run" / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="a model folder, or the folder of a run")
    parser.add_argument("--source", type=Path, help="sentences, one to a line; default: the demo's")
    parser.add_argument("--languages", default="de-en", help="of the model")
    parser.add_argument("--sentences", type=int, help="default: 50 for each client")
    parser.add_argument("--clients", type=int, help="default: 16, on a GPU 64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60, help="of the overload")
    parser.add_argument("--parts", help="default: throughput,overload,faults, on a GPU throughput")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--quick", action="store_true", help="for a test: few sentences, a small model")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    if options.peer:
        peer(options.model, options.device, options.int8)
        return
    gpu = options.device.startswith("cuda")
    options.clients = options.clients or (64 if gpu else 16)
    options.sentences = options.sentences or options.clients * 50
    options.parts = options.parts or ("throughput" if gpu else "throughput,overload,faults")
    if options.quick:
        options.sentences, options.rounds, options.seconds = 64, 1, 2.0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends, too
    with tempfile.TemporaryDirectory() as place:
        measure(options, Path(place))


def measure(options: argparse.Namespace, place: Path) -> None:
    import torch

    gpu = options.device.startswith("cuda")
    model = options.model or trained(place, options.quick, gpu)
    if options.source is None:
        write_demo_corpus(place / "corpus")
    texts = [line for line in read_lines(options.source or place / "corpus" / "test.de") if line.strip()]
    texts = (texts * (1 + options.sentences // len(texts)))[: options.sentences]
    system = [f"--device={options.device}", *(["--int8"] if options.int8 else [])]
    translator = Program(__file__, model, "--peer", *system)
    languages = options.languages.split("-")
    patience = 2 if options.quick else 5
    server = Program(
        *("-m", "macaron", "serve", f"{options.languages}={model}", "--port", 0, "--deadline", DEADLINE),
        *("--patience", patience, *system),
    )
    client = Client(int(server.first.split(":")[-1]), languages)
    size = "macaron-small" if gpu else "3 layers of width 256"
    result: dict[str, Any] = {
        "command": command(),
        "environment": environment(torch.device(json.loads(translator.first)["device"])),
        "model": f"{size}, trained on the demo's corpus" if options.model is None else str(options.model),
        "int8": options.int8,
    }
    pid, parts = server.process.pid, options.parts.split(",")

    def keep() -> None:
        if options.out is not None:
            write_json(options.out, result)

    try:
        if "throughput" in parts or "overload" in parts:
            for found in throughput(client, translator, texts, options):
                result["throughput"] = found
                print(f"round {len(found['rounds'])}: {found['rounds'][-1]}", file=sys.stderr, flush=True)
                keep()
        if "overload" in parts:
            rate = 3 * result["throughput"]["server"]
            result["overload"] = asyncio.run(overload(client, pid, texts, rate, options.seconds))
            seconds, _, _ = asyncio.run(client.one_by_one(texts, options.clients))
            after = len(texts) / seconds / result["throughput"]["server"]
            result["overload"]["throughput_after_to_before"] = round(after, 3)
            keep()
        if "faults" in parts:
            result["faults"] = asyncio.run(faults(client, pid, texts))
    finally:
        server.end()
        translator.end()
    result["exit_code"] = server.process.returncode
    show(result)
    keep()


def show(result: dict[str, Any]) -> None:
    if "throughput" in result:
        found = result["throughput"]
        rows = [
            ("macaron serve", "server"),
            ("Translator, batches", "translator_batches"),
            ("Translator, one by one", "translator_alone"),
        ]
        print_table(
            [f"{found['clients']} clients", "sentences/s", "server / this"],
            [[name, number(found[key], ",.1f"), number(found["server"] / found[key], ".2f")] for name, key in rows],
        )
        print(f"p50 {found['p50_ms']} ms, p95 {found['p95_ms']} ms")
    if "overload" in result:
        print_table(["overload", ""], [[name, str(value)] for name, value in result["overload"].items()])
    for name, found in result.get("faults", {}).items():
        print(f"{name}: {found['usual_requests']} usual requests, {found['lost']} lost")


if __name__ == "__main__":
    main()
