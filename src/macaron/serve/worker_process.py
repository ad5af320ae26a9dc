"""A worker process as the engine sees it: started, given batches one after another, and ended."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

import macaron
from macaron.errors import MacaronError
from macaron.serve.queue import BatchKind, Sentence

_LONGEST_LINE = 1 << 28  # bytes of an answer
#: Kernels that oneDNN keeps, one for each shape of a product: more take memory and save no time.
_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}


class WorkerLost(HTTPException):
    """The worker died, or failed, while it had this request."""

    def __init__(self) -> None:
        super().__init__(503, "the model stopped during this request: try again", {"Retry-After": "1"})


class WorkerProcess:
    """See the module.

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
        #: Tokens of a batch, padding included.
        self.budget = 0
        #: Where it computes, once it has loaded the models: ``cpu`` or ``cuda``.
        self.device = ""

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
            said = {"failed": "the worker process ended while it loaded the models"}
        if "failed" in said:
            await self._process.wait()
            raise MacaronError(said["failed"])
        self.budget, self.device, self._ready = said["budget"], said["device"], True

    async def run(self, kind: BatchKind, batch: list[Sentence]) -> None:
        """Have it do a batch, and hand on the answers. WorkerLost if it dies meanwhile, or seems to be stuck."""
        self.batch = batch
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
