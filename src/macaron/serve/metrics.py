"""What is counted, for Prometheus at ``/metrics``. Labels are names of models and paths of ours: no texts, no keys."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


class Metrics:
    """The counters of a server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.answers = Counter("macaron_answers", "Answers by path and status.", ["path", "status"], registry=registry)
        self.refused = Counter("macaron_refused", "Requests that found the queue full.", registry=registry)
        self.late = Counter("macaron_late", "Requests that missed their deadline.", registry=registry)
        self.abandoned = Counter("macaron_abandoned", "Requests whose client went away.", registry=registry)
        self.sentences = Counter("macaron_sentences", "Sentences and other inputs done.", ["model"], registry=registry)
        self.characters = Counter("macaron_characters", "Characters done.", ["model"], registry=registry)
        self.restarts = Counter("macaron_worker_restarts", "Workers that died.", registry=registry)
        self.workers = Gauge("macaron_workers", "Workers that live.", registry=registry)
        self.waiting = Gauge("macaron_waiting_sentences", "Sentences in the queue.", registry=registry)
        self.running = Gauge("macaron_running_sentences", "Sentences in workers.", registry=registry)
        self.request_seconds = Histogram(
            "macaron_request_seconds", "From a request to its answer.", buckets=_SECONDS, registry=registry
        )
        self.batch_seconds = Histogram("macaron_batch_seconds", "Time of a batch.", buckets=_SECONDS, registry=registry)
        self.batch_sentences = Histogram(
            "macaron_batch_sentences", "Sentences of a batch.", buckets=_SENTENCES, registry=registry
        )

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)


class Counted:
    """Counts the answers of an application.

    :param paths: those that are counted by themselves; ``/pipeline/{task}`` stands for all that begin so. Others, which
        anybody can make up, are counted together
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Iterable[str]) -> None:
        self.app, self.metrics = app, metrics
        self.paths = {path.partition("{")[0] for path in paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        status = "none"  # the client went away

        async def counted(message: Message) -> None:
            nonlocal status
            status = str(message.get("status", status))
            await send(message)

        path = scope["path"]
        start = f"{path.rpartition('/')[0]}/"
        named = path if path in self.paths else start if start in self.paths - {"/"} else "other"
        with self.metrics.request_seconds.time():
            try:
                await self.app(scope, receive, counted)
            except Exception:
                status = "500"
                raise
            finally:
                self.metrics.answers.labels(named, status).inc()
