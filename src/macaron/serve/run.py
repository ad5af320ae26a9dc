"""From settings to a listening server: the socket, uvicorn, signals."""

import asyncio
import signal
import socket
import sys

import uvicorn

from macaron.errors import MacaronError
from macaron.serve.app import make_app
from macaron.serve.catalogue import Catalogue
from macaron.serve.engine import Engine
from macaron.serve.settings import ServeSettings


def run(settings: ServeSettings, catalogue: Catalogue) -> None:
    """Serve until a signal comes."""
    listening = _listen(settings)
    # uvicorn sends itself the signal that ended it; it has been obeyed by then.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(_serve(settings, catalogue, listening))


async def _serve(settings: ServeSettings, catalogue: Catalogue, listening: socket.socket) -> None:
    engine = Engine(settings, catalogue)
    config = uvicorn.Config(
        make_app(settings, catalogue, engine),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.grace),
        lifespan="on",
    )

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"macaron: serving on http://{shown}:{port}", flush=True)

    await Announcing(config).serve([listening])


def _listen(settings: ServeSettings) -> socket.socket:
    try:
        found = socket.create_server(
            (settings.host, settings.port), family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        )
    except OSError as error:
        raise MacaronError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}. Choose another --port."
        ) from None
    if not settings.local and settings.api_keys is None:
        print(
            f"macaron: everybody who reaches {settings.host}:{settings.port} may ask: give --api-keys, or put a "
            "proxy in front that checks who asks",
            file=sys.stderr,
        )
    return found
