"""The application: the routes of all protocols together, and what holds for all of them."""

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
from macaron.serve.metrics import Counted
from macaron.serve.page import Page
from macaron.serve.protocols import ERRORS
from macaron.serve.service import Service
from macaron.serve.settings import ServeSettings


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
