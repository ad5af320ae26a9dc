"""The server: the routes of all protocols together, what holds for all of them; the socket, uvicorn and signals."""

import asyncio
import errno
import gc
import resource
import signal
import socket
import sys
import time
from collections.abc import Collection
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from macaron.errors import MacaronError
from macaron.models.catalogue import Catalogue
from macaron.serve import deepl, inference, libretranslate, metrics, page
from macaron.serve.engine import Engine
from macaron.serve.requests import ERRORS, Access
from macaron.serve.settings import ServeSettings, read_keys

#: File descriptors: as many as the system allows, up to this number; some are for other things than connections.
_MOST_FILES, _OTHER_FILES = 1 << 16, 64


def make_app(engine: Engine, access: Access) -> Starlette:
    """The application. The engine is started before it, and stopped after it."""
    cors: dict[str, Any] = {
        "allow_origins": engine.settings.origins,
        "allow_methods": ["GET", "POST"],
        "allow_headers": ["Authorization", "Content-Type"],
        "expose_headers": ["Retry-After"],
    }
    app = Starlette(
        routes=[*metrics.ROUTES, *libretranslate.ROUTES, *deepl.ROUTES, *inference.ROUTES, *page.ROUTES],
        middleware=[Middleware(metrics.Counted, metrics=engine.metrics), Middleware(CORSMiddleware, **cors)],
        exception_handlers=ERRORS,
    )
    app.state.engine, app.state.access, app.state.files = engine, access, libretranslate.TranslatedFiles()
    return app


def run(settings: ServeSettings, catalogue: Catalogue) -> None:
    """Serve until SIGTERM, SIGINT (Ctrl-C) or SIGHUP; then finish what runs, and return."""
    listening = _listen(settings)
    local = settings.host in ("::1", "localhost") or settings.host.startswith("127.")
    if not local and settings.api_keys is None:
        print(
            f"macaron: anyone who can reach {settings.host} may use this server. Give --api-keys, or put a proxy in "
            "front of it that asks for a password.",
            file=sys.stderr,
        )
    asyncio.run(_serve(settings, catalogue, listening))


async def _serve(settings: ServeSettings, catalogue: Catalogue, listening: socket.socket) -> None:
    engine = Engine(settings, catalogue)
    access = Access(read_keys(settings.api_keys) if settings.api_keys else {}, settings.requests_per_minute)
    await engine.start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    config = uvicorn.Config(
        make_app(engine, access),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="critical",  # errors are logged by us, without texts
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
    # Many waiting requests are many objects: looking for garbage among 200,000 of them takes a tenth of a second.
    gc.freeze()
    gc.set_threshold(1000, 20, 100)
    print(f"macaron: serving on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    cutter = asyncio.create_task(_cut_off(server.server_state.connections, settings.patience))
    try:
        await server.serve([listening])
    finally:
        cutter.cancel()
        await engine.stop(0 if server.force_exit else 1)


async def _cut_off(connections: Collection[Any], patience: float) -> None:
    """Disconnect clients that do not send a whole request within some seconds."""
    begun: dict[Any, tuple[Any, float]] = {}
    while True:
        await asyncio.sleep(patience / 10)
        now, before, begun = time.monotonic(), begun, {}
        for each in connections:
            # The request that it sends, or the last one that it has sent.
            request, (last, since) = each.cycle, before.get(each, (each.cycle, now))
            if request is None or request.more_body or request.response_complete:
                begun[each] = (request, since if last is request else now)
                if now - begun[each][1] > patience:
                    each.transport.abort()


def _listen(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
        # Connections inherit it. An answer is written in two parts: the second must not wait until the first is
        # acknowledged, which takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        place, reason = f"{settings.host}, port {settings.port}", error.strerror or error
        raise MacaronError(f"cannot listen on {place}: {reason}. Choose another {other}.") from None
