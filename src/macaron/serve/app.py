"""The application: the routes of all protocols together, and what holds for all of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.serve.access import Access, BodyLimit, read_keys
from macaron.serve.catalogue import Catalogue
from macaron.serve.deepl import DeepL
from macaron.serve.engine import Engine
from macaron.serve.inference import Inference
from macaron.serve.libretranslate import LibreTranslate
from macaron.serve.protocols import ERRORS
from macaron.serve.service import Service
from macaron.serve.settings import ServeSettings


def make_app(settings: ServeSettings, catalogue: Catalogue, engine: Engine) -> Starlette:
    """The application. It starts the engine, and stops it."""
    keys = read_keys(settings.api_keys) if settings.api_keys else {}
    service = Service(settings, catalogue, engine, Access(keys, settings.requests_per_minute))

    async def health(_: Request) -> Response:
        good = engine.healthy
        return JSONResponse({"status": "ok" if good else "no worker"}, 200 if good else 503)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.stop(settings.grace)

    return Starlette(
        routes=[
            Route("/health", health),
            *LibreTranslate(service).routes(),
            *DeepL(service).routes(),
            *Inference(service).routes(),
        ],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
            ),
            Middleware(BodyLimit, largest=settings.body_limit),
        ],
        lifespan=lifespan,
        exception_handlers=ERRORS,
    )
