"""The engine: one queue of sentences over all requests, and the workers that translate them in batches."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from macaron.errors import MacaronError
from macaron.processes import available_cores
from macaron.serve.catalogue import Catalogue
from macaron.serve.settings import ServeSettings

Format = Literal["text", "html", "srt"]
_LONGEST_LINE = 1 << 28  # bytes of a worker's answer


class Busy(Exception):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy: try again in {retry_after} s")
        self.retry_after = retry_after


class TooLate(Exception):
    """The deadline has passed."""


class WorkerLost(Exception):
    """The worker died while it had this request."""


@dataclass(frozen=True)
class Translated:
    """A translation, and the next best ones."""

    text: str
    alternatives: tuple[str, ...] = ()


@dataclass(eq=False)
class _Job:
    model: str
    task: str
    item: Any
    parameters: Mapping[str, Any]
    future: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Engine:
    """See the module. `start` it before use, in the event loop that it is used in."""

    def __init__(self, settings: ServeSettings, catalogue: Catalogue) -> None:
        self.settings, self.catalogue = settings, catalogue
        self._queue: deque[_Job] = deque()
        self._process: Process | None = None
        self._free = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Whether a worker lives."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the workers and wait until the models are loaded."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "macaron.serve.worker"), stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
        )
        models = [{"name": m.name, "folder": str(m.folder), "kind": m.kind} for m in self.catalogue.models]
        self._tell(
            {
                "models": models,
                "device": self.settings.device,
                "int8": self.settings.int8,
                "threads": available_cores(),
            }
        )
        answer = await self._hear()
        if "failed" in answer:
            raise MacaronError(answer["failed"])
        self._task = asyncio.create_task(self._serve())

    async def stop(self, grace: float) -> None:
        """Finish what runs and end the workers; kill those that take longer than so many seconds."""
        if self._process is None:
            return
        if self._task is not None:
            self._task.cancel()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), grace)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def translate(
        self,
        model: str,
        texts: Sequence[str],
        *,
        format: Format = "text",
        alternatives: int = 0,
        deadline: float | None = None,
    ) -> list[Translated]:
        """Translate texts with a model of the catalogue.

        :param alternatives: how many more translations of each text
        :param deadline: in seconds; by default that of the settings
        """
        found = await self._do(model, "translate", texts, {}, deadline)
        return [Translated(each[0], tuple(each[1:])) for each in found]

    async def call(self, model: str, task: str, inputs: Any, parameters: Mapping[str, Any]) -> Any:
        """What a model gives for a task; ``particles`` gives a page."""
        [found] = await self._do(model, task, [inputs], parameters, None)
        return found

    async def _do(
        self, model: str, task: str, items: Sequence[Any], parameters: Mapping[str, Any], deadline: float | None
    ) -> list[Any]:
        if len(self._queue) >= self.settings.queue:
            raise Busy(1)
        jobs = [_Job(model, task, item, parameters) for item in items]
        self._queue.extend(jobs)
        self._free.set()
        try:
            async with asyncio.timeout(deadline or self.settings.deadline):
                return [await job.future for job in jobs]
        except TimeoutError:
            raise TooLate from None
        finally:
            for job in jobs:
                if job in self._queue:
                    self._queue.remove(job)

    async def _serve(self) -> None:
        while True:
            while not self._queue:
                self._free.clear()
                await self._free.wait()
            first = self._queue[0]
            batch = [job for job in self._queue if (job.model, job.task) == (first.model, first.task)][:64]
            for job in batch:
                self._queue.remove(job)
            items = [job.item for job in batch]
            self._tell({"model": first.model, "task": first.task, "items": items, "parameters": dict(first.parameters)})
            while "done" not in (answer := await self._hear()):
                future = batch[answer["item"]].future
                if not future.done():
                    future.set_result(answer["result"])

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _hear(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise WorkerLost
        answer: dict[str, Any] = json.loads(line)
        return answer
