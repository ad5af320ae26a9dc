"""Requests to the server's application: its protocols, its checks and a real model, without sockets and workers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.contents import KEY
from macaron.errors import MacaronError
from macaron.models.catalogue import Catalogue
from macaron.serve import worker
from macaron.serve.app import make_app
from macaron.serve.engine import Engine, ServeSettings
from macaron.serve.requests import Access, read_keys


class Here(Engine):
    """An engine that computes in this process, as a worker does."""

    async def do(
        self, model: str, task: str, items: Sequence[Any], options: Mapping[str, Any], deadline: float | None = None
    ) -> list[Any]:
        worker._loaded.cache_clear()
        served = {name: [str(each.folder), each.tasks[0]] for name, each in self.catalogue.models.items()}
        models = worker.Models({"device": "cpu", "int8": False, "threads": 1, "models": served})
        batch = json.loads(json.dumps({"model": model, "task": task, "items": items, "options": options}))
        said: list[dict[str, Any]] = []
        worker.answer(models, batch, range(len(items)), said.append)
        for each in said:
            if "error" in each:
                raise MacaronError(each["error"]) if each["error"] else RuntimeError("see stderr")
        return [each["result"] for each in sorted(said, key=lambda each: int(each["item"]))]


def ask(path: str, kind: str, body: bytes, keys: Path | None) -> tuple[int, bytes]:
    """The status and the content of the answer to a POST; what goes wrong inside is raised."""
    settings = ServeSettings(device="cpu", workers=1)
    catalogue = Catalogue(["run", "bert"] if Path("bert").exists() else ["run"])
    sent: list[dict[str, Any]] = []

    async def work() -> None:
        keyed = Access(read_keys(keys) if keys else {}, 0)
        app = make_app(Here(settings, catalogue), keyed)
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for part in parts:
                return part
            await asyncio.Event().wait()  # the client waits
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        headers = {"content-type": kind, "authorization": f"Bearer {KEY}", "content-length": str(len(body))}
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "http_version": "1.1",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await app(scope, receive, send)

    asyncio.run(work())
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])
