"""The page at ``/``: its files, and a sentence of the reader as particles in a model ("look inside")."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from macaron.decode.text_pieces import sentence_at
from macaron.errors import MacaronError
from macaron.lab.page import POLICY as LAB_POLICY
from macaron.lab.page import fill
from macaron.serve.requests import Asked, answered, as_http

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
ROUTES = [Route("/", _asset), Route("/assets/{name}", _asset), Route("/inside", _inside, methods=["POST"])]


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
