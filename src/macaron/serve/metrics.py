"""What the server tells of itself: ``/health``, and ``/metrics`` for Prometheus.

Labels are names of models and paths of ours: no texts, no keys.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


class Metrics:
    """The counters of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "macaron", "registry": self.registry}
        self.answers = Counter("answers", "Answers by path and status.", ["path", "status"], **own)
        self.sentences = Counter("sentences", "Sentences and other inputs done.", ["model"], **own)
        self.characters = Counter("characters", "Characters done.", ["model"], **own)
        self.restarts = Counter("worker_restarts", "Workers that died.", **own)
        self.workers = Gauge("workers", "Workers that live.", **own)
        self.waiting = Gauge("waiting_sentences", "Sentences in the queue.", **own)
        self.running = Gauge("running_sentences", "Sentences in workers.", **own)
        self.request_seconds = Histogram("request_seconds", "From a request to its answer.", buckets=_SECONDS, **own)
        self.batch_seconds = Histogram("batch_seconds", "Time of a batch.", buckets=_SECONDS, **own)
        self.batch_sentences = Histogram("batch_sentences", "Sentences of a batch.", buckets=_SENTENCES, **own)


class Counted:
    """Counts the answers of an application by its own paths, without their parameters, which anybody can make up."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        status = "500"  # unless something else is said

        async def counted(message: Message) -> None:
            nonlocal status
            status = str(message.get("status", status))
            await send(message)

        with self.metrics.request_seconds.time():
            try:
                await self.app(scope, receive, counted)
            finally:
                # What the router has found is in the scope now.
                path = "/".join(scope["path"].split("/")[: 2 if scope.get("path_params") else None])
                self.metrics.answers.labels(path if "endpoint" in scope else "other", status).inc()


async def _health(request: Request) -> Response:
    good = request.app.state.engine.alive
    return JSONResponse({"status": "ok" if good else "no worker"}, 200 if good else 503)


async def _metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)


ROUTES = [Route("/health", _health), Route("/metrics", _metrics)]
