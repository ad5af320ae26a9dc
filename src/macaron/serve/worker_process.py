"""A worker process as the engine sees it: started, given batches, and started again when it has died."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import macaron
from macaron.errors import MacaronError
from macaron.serve.queue import BatchKind, Sentence

_LONGEST_LINE = 1 << 28  # bytes of an answer
#: Kernels that oneDNN keeps, one for each shape of a product: more take memory and save no time.
_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
#: Seconds before a worker is started again: none at first, then more and more, until one has lived for a minute.
_DELAYS, _LIVED = (0, 1, 2, 5, 10, 30), 60


class WorkerLost(Exception):
    """The worker died, or failed, while it had this request."""


class WorkerProcess:
    """See the module.

    :param settings: the first line that it is told
    :param limit: seconds of a batch, after which the process is taken for stuck and killed
    :param done: called when a batch is over, with its kind, its sentences and its seconds
    :param free: called when the process is ready for a batch
    :param died: called when it has died
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        limit: float,
        done: Callable[[BatchKind, list[Sentence], float], None],
        free: Callable[[], None],
        died: Callable[[], None],
    ) -> None:
        self._settings, self._limit = settings, limit
        self._done, self._free, self._died = done, free, died
        self._process: Any = None  # an `asyncio.subprocess.Process`, once it is started
        self._keeper: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._kind, self._began = BatchKind("", "", ""), 0.0
        #: The sentences that it has.
        self.batch: list[Sentence] = []
        self.alive = False
        #: Tokens of a batch, padding included.
        self.budget = 0
        #: Where it computes, once it has loaded the models: ``cpu`` or ``cuda``.
        self.device = ""

    @property
    def free(self) -> bool:
        """Whether it can take a batch."""
        return self.alive and not self.batch

    async def start(self) -> None:
        """Start it, and wait until it has loaded the models. From now on it is started again when it dies."""
        await self._launch()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self, grace: float) -> None:
        """Let it finish its batch and end; kill it after so many seconds."""
        self.alive = False
        if self._keeper is not None:
            self._keeper.cancel()
        if self._process is None:
            return
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace)
        self._kill()
        await self._process.wait()

    def run(self, kind: BatchKind, batch: list[Sentence]) -> None:
        """Give it a batch. It is free."""
        loop = asyncio.get_running_loop()
        self._kind, self.batch, self._began = kind, batch, loop.time()
        self._watch = loop.call_later(self._limit, self._kill)
        items = [sentence.content for sentence in batch]
        self._tell({"model": kind.model, "task": kind.task, "items": items, "options": json.loads(kind.options)})

    async def _keep(self) -> None:
        """Listen to it as long as it lives, and start it again."""
        loop, died = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            await self._listen()
            died = 0 if loop.time() - began > _LIVED else died
            while not self.alive:
                await asyncio.sleep(_DELAYS[min(died, len(_DELAYS) - 1)])
                died += 1
                try:
                    await self._launch()
                except MacaronError as error:
                    print(f"macaron: a worker cannot be started: {error}", file=sys.stderr, flush=True)
            self._free()

    async def _launch(self) -> None:
        # Ours, wherever it was found; and not what lies in the working directory.
        source = str(Path(macaron.__file__).parents[1])
        paths = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "macaron.serve.worker"),
            stdin=PIPE,
            stdout=PIPE,
            limit=_LONGEST_LINE,
            env={**_ENVIRONMENT, **os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C in a terminal is for the server
        )
        self._tell(self._settings)
        said = await self._hear()
        if said is None or "failed" in said:
            await self._process.wait()
            raise MacaronError(said["failed"] if said else "the worker process ended while it loaded the models")
        self.budget, self.device, self.alive = said["budget"], said["device"], True

    async def _listen(self) -> None:
        """Hand on what it says, until it has died."""
        while (said := await self._hear()) is not None:
            if "done" in said:
                kind, batch = self._kind, self._end_batch()
                self._done(kind, batch, asyncio.get_running_loop().time() - self._began)
                self._free()
                continue
            answer = self.batch[said["item"]].answer
            if answer.done():  # nobody waits for it any more
                continue
            if "error" not in said:
                answer.set_result(said["result"])
            else:
                answer.set_exception((WorkerLost if said["fault"] else MacaronError)(said["error"]))
        self.alive = False
        self._died()
        for sentence in self._end_batch():
            if not sentence.answer.done():
                sentence.answer.set_exception(WorkerLost("the worker process died"))

    def _end_batch(self) -> list[Sentence]:
        if self._watch is not None:
            self._watch.cancel()
        batch, self.batch = self.batch, []
        return batch

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                self._process.kill()

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _hear(self) -> dict[str, Any] | None:
        """What it says next; None when it has died."""
        line = await self._process.stdout.readline()
        said: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return said
