"""The server: the routes of all protocols together, the page, health and metrics; the socket, uvicorn and signals.

The page at ``/`` has files, and shows a sentence of the reader as particles in a model ("look inside").
"""

import asyncio
import contextlib
import errno
import gc
import resource
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from typing import Any

import uvicorn
from markupsafe import Markup
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from macaron.decode.text_pieces import sentence_at
from macaron.errors import MacaronError
from macaron.lab.page import POLICY as LAB_POLICY
from macaron.lab.page import fill
from macaron.models.catalogue import Catalogue
from macaron.serve import protocols
from macaron.serve.engine import Engine, Metrics, ServeSettings
from macaron.serve.requests import ERRORS, Access, Asked, answered, as_http, read_keys

#: File descriptors: as many as the system allows, up to this number; some are for other things than connections.
_MOST_FILES, _OTHER_FILES = 1 << 16, 64
#: The page loads its own files and asks its own server, nothing else. Nothing inline runs, its scripts make no HTML of
#: text (trusted types), and no other site frames it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
#: The lab's page has its scripts inline, so it gets an origin of its own: it reaches neither the page nor the server.
INSIDE_POLICY = f"{LAB_POLICY}; sandbox allow-scripts; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
#: The page's own files, and those that it shares with the lab's pages.
_ASSETS = {
    **dict.fromkeys(("index.html", "page.css", "page.js", "icon.svg"), "macaron.serve"),
    **dict.fromkeys(("base.css", "base.js"), "macaron.lab"),
}


async def _asset(request: Request) -> Response:
    """A file of the page; at ``/`` the page itself."""
    name = request.path_params.get("name", "index.html")
    if name not in _ASSETS:
        raise HTTPException(404, "there is no such file")
    content = (files(_ASSETS[name]) / "assets" / name).read_bytes()
    return _response(content, POLICY, media_type=_TYPES[name.rpartition(".")[2]])


async def _inside(request: Request) -> Response:
    """The sentence at the cursor (``at``) of a text as particles. A form asks, so errors are pages, too."""
    try:
        return _response(await answered(request, _particles), INSIDE_POLICY)
    except (HTTPException, MacaronError) as error:
        told = as_http(error)
        message = f"{told.detail[:1].upper()}{told.detail[1:]}"
        body = Markup("<p>{}</p>\n<p>Close this tab to return to the text.</p>").format(message)
        page = fill("page.html", title="Look inside", body=body)
        return _response(page, INSIDE_POLICY, told.headers, status_code=told.status_code)


async def _particles(ask: Asked) -> Any:
    text, source, target = (ask.fields.read(name) for name in ("q", "source", "target"))
    ask.measure([text])
    catalogue = ask.engine.catalogue
    model = catalogue.pair(catalogue.language(source), catalogue.language(target))
    if not text:
        raise MacaronError("there is no text")
    sentence = sentence_at(text, ask.fields.read("at", int, 0), model.source)
    return (await ask.engine.do(model.name, "particles", [sentence], {}))[0]


#: Addresses in the page are relative: a proxy may add a path.
_PAGE = [Route("/", _asset), Route("/assets/{name}", _asset), Route("/inside", _inside, methods=["POST"])]


def _response(content: bytes | str, policy: str, headers: Mapping[str, str] | None = None, **options: Any) -> Response:
    safe = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        # Asked for again after an update of the server; a sentence is kept nowhere.
        "Cache-Control": "no-cache" if policy == POLICY else "no-store",
    }
    return Response(content, headers={**(headers or {}), **safe}, **{"media_type": "text/html", **options})


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


def make_app(engine: Engine, access: Access) -> Starlette:
    """The application. The engine is started before it, and stopped after it."""
    cors: dict[str, Any] = {
        "allow_origins": engine.settings.origins,
        "allow_methods": ["GET", "POST"],
        "allow_headers": ["Authorization", "Content-Type"],
        "expose_headers": ["Retry-After"],
    }
    app = Starlette(
        routes=[Route("/health", _health), Route("/metrics", _metrics), *protocols.ROUTES, *_PAGE],
        middleware=[Middleware(Counted, metrics=engine.metrics), Middleware(CORSMiddleware, **cors)],
        exception_handlers=ERRORS,
    )
    app.state.engine, app.state.access, app.state.files = engine, access, protocols.TranslatedFiles()
    return app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take no signals: ours are in place before the server says that it serves."""
        yield


async def serve(settings: ServeSettings, catalogue: Catalogue) -> None:
    """Serve until SIGTERM, SIGINT (Ctrl-C) or SIGHUP; then finish what runs, and return."""
    listening = _listen(settings)
    local = settings.host in ("::1", "localhost") or settings.host.startswith("127.")
    if not local and settings.api_keys is None:
        remedy = "Give --api-keys, or put a proxy in front of it that asks for a password."
        print(f"macaron: anyone who can reach {settings.host} may use this server. {remedy}", file=sys.stderr)
    engine = Engine(settings, catalogue)
    access = Access(read_keys(settings.api_keys) if settings.api_keys else {}, settings.requests_per_minute)
    await engine.start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    config = uvicorn.Config(
        make_app(engine, access),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="critical",  # errors are logged by us, without texts
        access_log=False,
        server_header=False,
        limit_concurrency=most - _OTHER_FILES,
        timeout_graceful_shutdown=max(1, int(settings.grace) - 1),
    )
    server = _Server(config)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, server.handle_exit)
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
