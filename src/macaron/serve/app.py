"""The server: the routes of all protocols together, what holds for all of them; the socket, uvicorn and signals."""

import asyncio
import errno
import gc
import resource
import signal
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from macaron.errors import MacaronError
from macaron.serve.access import Access, BodyLimit, read_keys
from macaron.serve.catalogue import Catalogue
from macaron.serve.deepl import DeepL
from macaron.serve.engine import Engine
from macaron.serve.inference import Inference
from macaron.serve.libretranslate import LibreTranslate
from macaron.serve.metrics import Counted
from macaron.serve.page import Page
from macaron.serve.protocols import ERRORS
from macaron.serve.service import Service
from macaron.serve.settings import ServeSettings

#: File descriptors: as many as the system allows, up to this number; some are for other things than connections.
_MOST_FILES, _OTHER_FILES = 1 << 16, 64


def make_app(settings: ServeSettings, catalogue: Catalogue, engine: Engine) -> Starlette:
    """The application. The engine is started before it, and stopped after it."""
    keys = read_keys(settings.api_keys) if settings.api_keys else {}
    service = Service(settings, catalogue, engine, Access(keys, settings.requests_per_minute))

    async def health(_: Request) -> Response:
        good = engine.healthy
        return JSONResponse({"status": "ok" if good else "no worker"}, 200 if good else 503)

    async def metrics(_: Request) -> Response:
        return Response(engine.metrics.text(), media_type=engine.metrics.content_type)

    routes = [
        Route("/health", health),
        Route("/metrics", metrics),
        *LibreTranslate(service).routes(),
        *DeepL(service).routes(),
        *Inference(service).routes(),
        *Page(service).routes(),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Counted, metrics=engine.metrics, paths=[route.path for route in routes]),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
            ),
            Middleware(BodyLimit, largest=settings.body_limit),
        ],
        exception_handlers=ERRORS,
    )


def run(settings: ServeSettings, catalogue: Catalogue) -> None:
    """Serve until SIGTERM, SIGINT (Ctrl-C) or SIGHUP; then finish what runs, and return."""
    listening = _listen(settings)
    if not settings.local and settings.api_keys is None:
        print(
            f"macaron: anyone who can reach {settings.host} may use this server. Give --api-keys, or put a proxy in "
            "front of it that asks for a password.",
            file=sys.stderr,
        )
    asyncio.run(_serve(settings, catalogue, listening))


async def _serve(settings: ServeSettings, catalogue: Catalogue, listening: socket.socket) -> None:
    engine = Engine(settings, catalogue)
    app = make_app(settings, catalogue, engine)
    await engine.start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    config = uvicorn.Config(
        app,
        http=type("Patient", (PatientProtocol,), {"patience": settings.patience}),
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=files - _OTHER_FILES,
        timeout_graceful_shutdown=max(1, int(settings.grace) - 1),
    )
    server = uvicorn.Server(config)

    # uvicorn obeys these two, and then sends itself what it got: that is ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup wants it
        signal.signal(signal.SIGHUP, lambda _, frame: server.handle_exit(signal.SIGTERM, frame))
    host, port = listening.getsockname()[:2]
    # Many waiting requests are many objects: looking for garbage among all of them takes a tenth of a second.
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    print(f"macaron: serving on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    try:
        await server.serve([listening])
    finally:
        await engine.stop(0 if server.force_exit else 1)


class PatientProtocol(H11Protocol):
    """HTTP, for clients that send a whole request within some seconds; others are cut off."""

    patience = 60.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Part of a request, or all of it."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()

    def _wait(self) -> None:
        """Run the clock while a request is incomplete."""
        incomplete = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        if incomplete and self._limit is None:
            self._limit = self.loop.call_later(self.patience, self.transport.abort)
        elif not incomplete and self._limit is not None:
            self._limit.cancel()
            self._limit = None


def _listen(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        place, reason = f"{settings.host}, port {settings.port}", error.strerror or error
        raise MacaronError(f"cannot listen on {place}: {reason}. Choose another {other}.") from None
