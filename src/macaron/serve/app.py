"""The application: the routes of all protocols together, and what holds for all of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.serve.catalogue import Catalogue
from macaron.serve.engine import Busy, Engine
from macaron.serve.settings import ServeSettings


def make_app(settings: ServeSettings, catalogue: Catalogue, engine: Engine) -> Starlette:
    """The application. It starts the engine, and stops it."""

    async def health(_: Request) -> Response:
        good = engine.healthy
        return JSONResponse({"status": "ok" if good else "no worker"}, 200 if good else 503)

    async def translate(request: Request) -> Response:
        given = await request.json()
        model = catalogue.pair(given["source"], given["target"])
        if model is None:
            return JSONResponse({"error": f"{given['source']} to {given['target']} is not supported"}, 400)
        [found] = await engine.translate(model.name, [given["q"]])
        return JSONResponse({"translatedText": found.text})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.stop(settings.grace)

    async def busy(_: Request, error: Exception) -> Response:
        assert isinstance(error, Busy)
        return JSONResponse({"error": str(error)}, 503, {"Retry-After": str(error.retry_after)})

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/translate", translate, methods=["POST"]),
        ],
        lifespan=lifespan,
        exception_handlers={Busy: busy},
    )
