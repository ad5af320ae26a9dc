"""Requests to the server's application: its protocols, its checks and a real model, without sockets and workers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.contents import KEY
from macaron.errors import MacaronError
from macaron.serve.app import make_app
from macaron.serve.catalogue import Catalogue
from macaron.serve.engine import Engine
from macaron.serve.settings import ServeSettings
from macaron.serve.worker import Models, answer


class Here(Engine):
    """An engine that computes in this process, as a worker does."""

    async def _do(
        self, model: str, task: str, items: Sequence[Any], options: Mapping[str, Any], deadline: float | None
    ) -> list[Any]:
        served = [{"name": each.name, "folder": str(each.folder), "kind": each.kind} for each in self.catalogue.models]
        models = Models(
            {"device": "cpu", "int8": False, "threads": 1, "models": [{**each, "labels": ()} for each in served]}
        )
        batch = json.loads(json.dumps({"model": model, "task": task, "items": items, "options": options}))
        said: list[dict[str, Any]] = []
        answer(models, batch, range(len(items)), said.append)
        for each in said:
            if "error" in each:
                raise (RuntimeError if each["fault"] else MacaronError)(each["error"])
        return [each["result"] for each in sorted(said, key=lambda each: int(each["item"]))]


def ask(path: str, kind: str, body: bytes, keys: Path | None) -> tuple[int, bytes]:
    """The status and the content of the answer to a POST; what goes wrong inside is raised."""
    settings = ServeSettings(device="cpu", workers=1, api_keys=keys)
    catalogue = Catalogue(["run", "bert"] if Path("bert").exists() else ["run"])
    sent: list[dict[str, Any]] = []

    async def work() -> None:
        app = make_app(settings, catalogue, Here(settings, catalogue))
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
