"""The settings of a server, and its engine: a queue of sentences over all requests, workers that take batches of them.

The engine lives in the event loop of the server and computes nothing itself. A worker that becomes free takes the next
batch at once: the sentences that come while a batch is computed are the next one. Answers come back sentence by
sentence, so that their clients can ask again before the batch is over.
"""

import asyncio
import json
import math
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

import macaron
from macaron.decode.documents import Document, Format, split_document
from macaron.decode.place_tags import Link
from macaron.errors import MacaronError, UsageError
from macaron.models.catalogue import Catalogue
from macaron.processes import available_cores
from macaron.serve.queue import BatchKind, Sentence, TurnQueue, Work

T = TypeVar("T")
#: Characters of a token, about; workers count tokens and cut batches that are too large.
_CHARACTERS = 3
#: A request is accepted if it will be done in this share of its time, as far as one can tell.
_SURE = 0.4
#: The weight of the past in the speed of a model, batch by batch.
_PAST = 0.8
#: Turns of the event loop before a batch is made: requests that have come already shall be in it.
_TURNS = 5
#: On a CPU, where threads of one process gain less than processes: see docs/serving.md.
_MOST_WORKERS = 4
#: Characters of texts, or bytes of a body, that take time.
_LARGE = 1 << 12
#: Seconds until a worker that cannot be started is tried again.
_PAUSE = 10
#: Bytes of an answer.
_LONGEST_LINE = 1 << 28
#: Kernels that oneDNN keeps, one for each shape of a product: more take memory and save no time.
_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
#: A request that has not been read yet.
_UNKNOWN = Work(BatchKind("", "", ""), [])
#: Bounds of histograms.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


@dataclass(frozen=True)
class ServeSettings:
    """How to serve: the options of the command, which explains them."""

    host: str = "127.0.0.1"
    port: int = 5000
    device: str = "auto"
    int8: bool = False
    workers: int = 0
    queue: int = 1000
    deadline: float = 30.0
    grace: float = 20.0
    patience: float = 60.0
    api_keys: Path | None = None
    requests_per_minute: int = 0
    text_limit: int = 20_000
    body_limit: int = 4 << 20  # bytes of a request, and of a file; the command does not offer it
    origins: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if self.int8 and self.device not in ("auto", "cpu"):
            raise UsageError(f"--int8 is for the CPU, not for {self.device}: leave it out, or choose --device cpu")
        for origin in self.origins:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise UsageError(f"--cors takes an origin, such as https://example.org, or *; not {origin!r}")


class Metrics:
    """What Prometheus is told. Labels are names of models and paths of ours: no texts, no keys."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "macaron", "registry": self.registry}
        self.answers = Counter("answers", "Answers by path and status.", ["path", "status"], **own)
        self.sentences = Counter("sentences", "Sentences and other inputs done.", ["model"], **own)
        self.characters = Counter("characters", "Characters done.", ["model"], **own)
        self.restarts = Counter("worker_restarts", "Workers that died, and were started again.", **own)
        self.workers = Gauge("workers", "Workers that live.", **own)
        self.waiting = Gauge("waiting_sentences", "Sentences in the queue.", **own)
        self.running = Gauge("running_sentences", "Sentences in workers.", **own)
        self.request_seconds = Histogram("request_seconds", "From a request to its answer.", buckets=_SECONDS, **own)
        self.batch_seconds = Histogram("batch_seconds", "Time of a batch.", buckets=_SECONDS, **own)
        self.batch_sentences = Histogram("batch_sentences", "Sentences of a batch.", buckets=_SENTENCES, **own)


class WorkerLost(HTTPException):
    """The worker died, or failed, while it had this request."""

    def __init__(self) -> None:
        super().__init__(503, "the model stopped during this request: try again", {"Retry-After": "1"})


class WorkerProcess:
    """A worker as the engine sees it: started, given batches one after another, and ended.

    :param settings: the first line that it is told
    :param limit: seconds of a batch, after which the process is taken for stuck and killed
    :param ended: called when the process has ended
    """

    def __init__(self, settings: Mapping[str, Any], limit: float, ended: Callable[[], None]) -> None:
        self._settings, self._limit, self._ended = settings, limit, ended
        self._process: Any = None  # an `asyncio.subprocess.Process`, once it is started
        self._end: asyncio.Task[int] | None = None
        self._ready = False
        #: The sentences that it has.
        self.batch: list[Sentence] = []
        #: Once it has loaded the models: tokens of a batch, padding included; where it computes, ``cpu`` or ``cuda``.
        self.budget, self.device = 0, ""

    @property
    def alive(self) -> bool:
        """Whether it can work."""
        return self._ready and self._process.returncode is None

    async def start(self) -> None:
        """Start it, for the first time or again, and wait until it has loaded the models."""
        self._ready = False
        # Our sources, wherever they were found; and not what lies in the working directory.
        paths = [str(Path(macaron.__file__).parents[1]), os.environ.get("PYTHONPATH")]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "macaron.serve.worker"),
            stdin=PIPE,
            stdout=PIPE,
            limit=_LONGEST_LINE,
            env={**_ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            process_group=0,  # Ctrl-C in a terminal is for the server; with a session of its own, nice would not count
        )
        self._end = asyncio.create_task(self._process.wait())
        self._end.add_done_callback(lambda _: self._ended())
        self._tell(self._settings)
        try:
            said = await self._hear()
        except WorkerLost:
            raise MacaronError("the worker process ended while it loaded the models") from None
        if "failed" in said:
            raise MacaronError(said["failed"])
        self.budget, self.device, self._ready = said["budget"], said["device"], True

    async def run(self, kind: BatchKind, batch: list[Sentence]) -> float:
        """Have it do a batch, and hand on the answers; the seconds. WorkerLost if it dies, or seems to be stuck."""
        self.batch, start = batch, time.monotonic()
        try:
            async with asyncio.timeout(self._limit):
                items = [sentence.content for sentence in batch]
                options = json.loads(kind.options)
                self._tell({"model": kind.model, "task": kind.task, "items": items, "options": options})
                while "done" not in (said := await self._hear()):
                    answer = batch[said["item"]].answer
                    if answer.done():  # nobody waits for it any more
                        continue
                    if "error" not in said:
                        answer.set_result(said["result"])
                    else:
                        answer.set_exception(MacaronError(said["error"]) if said["error"] else WorkerLost())
            return time.monotonic() - start
        except (WorkerLost, TimeoutError):
            await self.stop(0)
            raise WorkerLost from None
        finally:
            self.batch = []
            for sentence in batch:
                if not sentence.answer.done():
                    sentence.answer.set_exception(WorkerLost())

    async def stop(self, grace: float) -> None:
        """Let it finish its batch and end; kill it after so many seconds."""
        if self._process is None:
            return
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace)
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # asyncio's own would take the exit code from who waits
        await self._process.wait()

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _hear(self) -> Any:
        """What it says next; WorkerLost when it has died."""
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerLost
        return json.loads(line)


class Engine:
    """See the module. `start` it before use, in the event loop that it is used in."""

    def __init__(self, settings: ServeSettings, catalogue: Catalogue) -> None:
        self.settings, self.catalogue, self.metrics = settings, catalogue, Metrics()
        self._queue = TurnQueue()
        count = settings.workers or min(_MOST_WORKERS, available_cores())
        first_line = {
            "models": {name: [str(model.folder), model.tasks[0]] for name, model in catalogue.models.items()},
            "device": settings.device,
            "int8": settings.int8,
            "threads": max(1, available_cores() // count),
        }
        stuck = max(60.0, 4 * settings.deadline)
        self._wanted = asyncio.Event()  # there is something new in the queue, or a worker has died
        self._workers = [WorkerProcess(first_line, stuck, self._wanted.set) for _ in range(count)]
        self._keepers: list[asyncio.Task[None]] = []
        #: Characters and seconds of the last batches, by model and task.
        self._speeds: dict[tuple[str, str], tuple[float, float]] = {}
        self.metrics.waiting.set_function(lambda: self._queue.sentences)
        self.metrics.running.set_function(lambda: self._running)
        self.metrics.workers.set_function(lambda: self.alive)

    @property
    def alive(self) -> int:
        """How many workers live."""
        return sum(worker.alive for worker in self._workers)

    @property
    def _running(self) -> int:
        """How many sentences the workers have, and have not answered yet."""
        return sum(not sentence.answer.done() for worker in self._workers for sentence in worker.batch)

    async def start(self) -> None:
        """Start the workers and wait until all of them have loaded the models."""
        try:
            await self._workers[0].start()
            if not self.settings.workers and self._workers[0].device != "cpu":
                del self._workers[1:]
            await asyncio.gather(*(worker.start() for worker in self._workers[1:]))
        except BaseException:
            await self.stop(0)
            raise
        self._keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]

    async def stop(self, grace: float) -> None:
        """End the workers, each after its batch; kill those that take longer than so many seconds."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*(worker.stop(grace) for worker in self._workers))

    async def translate(
        self, model: str, texts: Sequence[str], format: Format = "text", alternatives: int = 0, deadline: float = 0
    ) -> list[list[str]]:
        """Translations of texts, best first, by a model of the catalogue; the first is that of `Translator.translate`.

        :param alternatives: how many more translations of each text, at most: the n-th joins the n-th best of each
            sentence, and those that are equal to others are left out
        :param deadline: in seconds; 0: that of the settings
        """
        served = self.catalogue.models[model]
        size = sum(map(len, texts))
        documents = await computed(size, lambda: [split_document(text, format, served.source) for text in texts])
        # A sentence with tags inside goes as a list: it gets an alignment, too.
        items = [
            [text] if marked else text
            for each in documents
            for text, marked in zip(each.sentences, each.marked, strict=True)
        ]
        found = iter(await self.do(model, "translate", items, {"nbest": alternatives + 1}, deadline))

        def join(document: Document) -> list[str]:
            mine = list(islice(found, len(document.sentences)))
            return list(dict.fromkeys(_joined(document, mine, rank, served.target) for rank in range(alternatives + 1)))

        return await computed(size, lambda: list(map(join, documents)))

    async def do(
        self, model: str, task: str, items: Sequence[Any], options: Mapping[str, Any], deadline: float = 0
    ) -> list[Any]:
        """What a model gives for items, in their order.

        The items of ``translate`` are sentences, or lists of one that is aligned, too; those of ``particles`` are
        sentences, those of the tasks of encoders lists of texts.
        """
        loop, limit = asyncio.get_running_loop(), deadline or self.settings.deadline
        # At least one character each; of an input of several texts all count.
        sizes = [max(1, len(each) if isinstance(each, str) else sum(map(len, each))) for each in items]
        sentences = [Sentence(*each, loop.create_future()) for each in zip(items, sizes, strict=True)]
        work = Work(BatchKind(model, task, json.dumps(options, sort_keys=True)), sentences)
        self.admit(limit, work)
        self._queue.add(work)
        self._wanted.set()
        try:
            async with asyncio.timeout(limit):
                return await asyncio.gather(*(each.answer for each in sentences))
        except TimeoutError:
            raise HTTPException(504, "the request took too long: send less at once, or try again later") from None
        finally:
            self._queue.discard(work)

    def admit(self, limit: float, work: Work = _UNKNOWN) -> None:
        """Refuse a request that would be done too late. One that finds nothing before it is never refused.

        :param limit: its deadline; infinite where it needs no worker
        """
        if not self._queue or limit == math.inf:
            return
        seconds, limit = 0.0, limit or self.settings.deadline
        for kind, length in (*self._queue.ahead_of(work).items(), (work.kind, work.length)):
            past, spent = self._speeds.get(kind[:2], (1.0, 0.0))
            seconds += length * spent / past
        seconds /= max(1, self.alive)
        if seconds > _SURE * limit or len(self._queue) >= self.settings.queue:
            wait = min(60, max(1, math.ceil(seconds - _SURE * limit)))
            raise HTTPException(503, f"the server is busy: try again in {wait} s", {"Retry-After": str(wait)})

    async def _keep(self, worker: WorkerProcess) -> None:
        """Give a worker its share of what waits as long as it lives, and start it again when it has died."""
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if not worker.alive:
                try:
                    await worker.start()
                    self.metrics.restarts.inc()
                except (MacaronError, OSError) as error:  # as there may be no memory or no files left
                    print(f"macaron: a worker cannot be started: {error}", file=sys.stderr, flush=True)
                    await asyncio.sleep(_PAUSE)
            elif self._queue:
                # A share of what other workers are computing, too: one large batch and one small one take longer.
                sentences = self._queue.sentences + self._running
                kind, batch = self._queue.take(worker.budget * _CHARACTERS, math.ceil(sentences / self.alive))
                with suppress(WorkerLost):
                    self._account(kind, batch, await worker.run(kind, batch))
            else:
                self._wanted.clear()
                await self._wanted.wait()

    def _account(self, kind: BatchKind, batch: Sequence[Sentence], seconds: float) -> None:
        """Count a batch that is done."""
        length = sum(each.length for each in batch)
        past, spent = self._speeds.get(kind[:2], (0.0, 0.0))
        self._speeds[kind[:2]] = (_PAST * past + length, _PAST * spent + seconds)
        self.metrics.sentences.labels(kind.model).inc(len(batch))
        self.metrics.characters.labels(kind.model).inc(length)
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.batch_sentences.observe(len(batch))


async def computed(size: int, work: Callable[[], T]) -> T:
    """What some work gives; in a thread, so that other requests go on meanwhile, if there is much to work on."""
    return await asyncio.to_thread(work) if size > _LARGE else work()


def _joined(document: Document, found: Sequence[Any], rank: int, lang: str) -> str:
    """A document of the n-th best translations of its sentences, or their last ones, each with its own alignment."""
    chosen = [each[min(rank, len(each) - 1)] for each in found]
    alignments = [None if links is None else tuple(Link(*map(tuple, link)) for link in links) for _, links in chosen]
    return document.join([text for text, _ in chosen], alignments, lang)
