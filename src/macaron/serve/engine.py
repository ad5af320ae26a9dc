"""The engine: one queue of sentences over all requests, and workers that take batches of them.

It lives in the event loop of the server and computes nothing itself. A worker that becomes free gets the next batch at
once, without waiting for more: the sentences that come while a batch is computed are the next one. Answers come back
sentence by sentence, so that their clients can ask again before the batch is over.
"""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from macaron.decode.documents import Document, Format, split_document
from macaron.decode.place_tags import Alignment, Link
from macaron.processes import available_cores
from macaron.serve.catalogue import Catalogue
from macaron.serve.metrics import Metrics
from macaron.serve.queue import BatchKind, Sentence, TurnQueue, Work
from macaron.serve.settings import ServeSettings
from macaron.serve.worker_process import WorkerLost, WorkerProcess

__all__ = ["Busy", "Engine", "Format", "TooLate", "TranslatedText", "WorkerLost"]

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
#: Longer texts are cut into sentences in a thread.
_LONG = 2000


class Busy(Exception):
    """Too much is waiting."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy: try again in {retry_after} s")
        self.retry_after = retry_after


class TooLate(Exception):
    """The deadline has passed."""


@dataclass(frozen=True)
class TranslatedText:
    """A translation, and the next best ones."""

    text: str
    alternatives: tuple[str, ...] = ()


class Engine:
    """See the module. `start` it before use, in the event loop that it is used in."""

    def __init__(self, settings: ServeSettings, catalogue: Catalogue) -> None:
        self.settings, self.catalogue, self.metrics = settings, catalogue, Metrics()
        self._queue = TurnQueue()
        count = settings.workers or min(_MOST_WORKERS, available_cores())
        first_line = {
            "models": [
                {"name": each.name, "folder": str(each.folder), "kind": each.kind, "labels": each.labels}
                for each in catalogue.models
            ],
            "device": settings.device,
            "int8": settings.int8,
            "threads": max(1, available_cores() // count),
        }
        stuck = max(60.0, 4 * settings.deadline)
        self._wanted = asyncio.Event()  # a worker has become free, or there is something new in the queue
        self._dispatcher: asyncio.Task[None] | None = None
        events = (self._account, self._wanted.set, self.metrics.restarts.inc)
        self._workers = [WorkerProcess(first_line, stuck, *events) for _ in range(count)]
        #: Characters and seconds of the last batches, by model and task.
        self._speeds: dict[tuple[str, str], tuple[float, float]] = {}
        self.metrics.waiting.set_function(lambda: self._queue.sentences)
        self.metrics.running.set_function(lambda: sum(len(worker.batch) for worker in self._workers))
        self.metrics.workers.set_function(lambda: sum(worker.alive for worker in self._workers))

    @property
    def healthy(self) -> bool:
        """Whether a worker lives."""
        return any(worker.alive for worker in self._workers)

    async def start(self) -> None:
        """Start the workers and wait until all of them have loaded the models."""
        self._dispatcher = asyncio.create_task(self._dispatch())
        try:
            await self._workers[0].start()
            if not self.settings.workers and self._workers[0].device != "cpu":
                del self._workers[1:]
            await asyncio.gather(*(worker.start() for worker in self._workers[1:]))
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace: float) -> None:
        """End the workers, each after its batch; kill those that take longer than so many seconds."""
        if self._dispatcher is not None:
            self._dispatcher.cancel()
        await asyncio.gather(*(worker.stop(grace) for worker in self._workers))

    async def translate(
        self,
        model: str,
        texts: Sequence[str],
        *,
        format: Format = "text",
        alternatives: int = 0,
        deadline: float | None = None,
    ) -> list[TranslatedText]:
        """Translate texts with a model of the catalogue; each as `Translator.translate` does.

        :param alternatives: how many more translations of each text, at most: the n-th joins the n-th best of each
            sentence, and those that are equal to others are left out
        :param deadline: in seconds; by default that of the settings
        """
        served = self.catalogue.named(model)

        def split() -> list[Document]:
            return [split_document(text, format, served.source) for text in texts]

        long = sum(map(len, texts)) > _LONG
        documents = await asyncio.to_thread(split) if long else split()
        # A sentence with tags inside goes as a list: it gets an alignment, too.
        items = [
            [text] if marked else text
            for each in documents
            for text, marked in zip(each.sentences, each.marked, strict=True)
        ]
        found = iter(await self._do(model, "translate", items, {"nbest": alternatives + 1}, deadline))

        def join(document: Document) -> TranslatedText:
            mine = list(islice(found, len(document.sentences)))
            ranked = ([_ranked(each, rank) for each in mine] for rank in range(alternatives + 1))
            best, *others = (
                document.join([text for text, _ in chosen], [links for _, links in chosen], served.target)
                for chosen in ranked
            )
            return TranslatedText(best, tuple(dict.fromkeys(each for each in others if each != best)))

        def joined() -> list[TranslatedText]:
            return [join(document) for document in documents]

        return await asyncio.to_thread(joined) if long else joined()

    async def call(self, model: str, task: str, inputs: Any, parameters: Mapping[str, Any]) -> Any:
        """What a model gives for a task: ``text_classification``, ``fill_mask``, ``feature_extraction`` take a list.

        ``particles`` takes a sentence and gives a page.
        """
        [found] = await self._do(model, task, [inputs], parameters, None)
        return found

    async def _do(
        self, model: str, task: str, items: Sequence[Any], options: Mapping[str, Any], deadline: float | None
    ) -> list[Any]:
        """The results of sentences, or of the inputs of a task, in their order."""
        loop, limit = asyncio.get_running_loop(), deadline or self.settings.deadline
        kind = BatchKind(model, task, json.dumps(options, sort_keys=True))
        sentences = [Sentence(each, _length(each), loop.create_future()) for each in items]
        work = Work(kind, sentences)
        self._admit(work, limit)
        self._queue.add(work)
        self._wanted.set()
        try:
            async with asyncio.timeout(limit):
                return await asyncio.gather(*(each.answer for each in sentences))
        except TimeoutError:
            self.metrics.late.inc()
            raise TooLate(f"the deadline of {limit:g} s has passed") from None
        except asyncio.CancelledError:
            self.metrics.abandoned.inc()
            raise
        finally:
            self._queue.discard(work)

    def _admit(self, work: Work, limit: float) -> None:
        """Refuse a request that would be done too late. One that finds nothing before it is never refused."""
        ahead = self._queue.ahead_of(work)
        if not ahead:
            return
        ahead[work.kind] = ahead.get(work.kind, 0) + work.length
        seconds = 0.0
        for kind, length in ahead.items():
            past, spent = self._speeds.get(kind[:2], (1.0, 0.0))
            seconds += length * spent / past
        seconds /= max(1, sum(worker.alive for worker in self._workers))
        if seconds > _SURE * limit or len(self._queue) >= self.settings.queue:
            self.metrics.refused.inc()
            raise Busy(min(60, max(1, math.ceil(seconds - _SURE * limit))))

    async def _dispatch(self) -> None:
        """Give batches to the workers that are free."""
        while True:
            await self._wanted.wait()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self._wanted.clear()
            free = [worker for worker in self._workers if worker.free]
            for number, worker in enumerate(free):
                share = math.ceil(self._queue.sentences / (len(free) - number))
                if share:
                    worker.run(*self._queue.take(worker.budget * _CHARACTERS, share))

    def _account(self, kind: BatchKind, batch: Sequence[Sentence], seconds: float) -> None:
        """Count a batch that is done."""
        length = sum(each.length for each in batch)
        past, spent = self._speeds.get(kind[:2], (0.0, 0.0))
        self._speeds[kind[:2]] = (_PAST * past + length, _PAST * spent + seconds)
        self.metrics.sentences.labels(kind.model).inc(len(batch))
        self.metrics.characters.labels(kind.model).inc(length)
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.batch_sentences.observe(len(batch))


def _ranked(found: Sequence[Any], rank: int) -> tuple[str, Alignment | None]:
    """The n-th best translation of a sentence, or its last one, with its own alignment."""
    texts, alignments = found
    place = min(rank, len(texts) - 1)
    links = alignments and alignments[place]
    return texts[place], None if links is None else tuple(Link(*map(tuple, link)) for link in links)


def _length(content: Any) -> int:
    """Characters of a sentence, or of all texts of an input; at least 1."""
    return max(1, len(content) if isinstance(content, str) else sum(map(len, content)))
