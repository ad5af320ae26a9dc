"""The page at ``/``: its files, and a sentence of the reader as particles in a model ("look inside")."""

from importlib.resources import files
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from macaron.decode.text_pieces import text_pieces
from macaron.errors import MacaronError
from macaron.lab.page import POLICY as LAB_POLICY
from macaron.lab.page import escape, render_page
from macaron.serve.engine import Busy, TooLate, WorkerLost
from macaron.serve.protocols import explain
from macaron.serve.requests import string, while_connected, whole_number
from macaron.serve.service import Service

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
_ASSETS = {"macaron.serve": ("index.html", "page.css", "page.js", "icon.svg"), "macaron.lab": ("base.css", "base.js")}


class Page:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.assets = {
            name: (files(room) / "assets" / name).read_bytes() for room, names in _ASSETS.items() for name in names
        }

    def routes(self) -> list[Route]:
        """The page, its files, and the look inside. Addresses in the page are relative: a proxy may add a path."""
        return [
            Route("/", self.asset),
            Route("/assets/{name}", self.asset),
            Route("/inside", self.inside, methods=["POST"]),
        ]

    async def asset(self, request: Request) -> Response:
        """A file of the page; at ``/`` the page itself."""
        name = request.path_params.get("name", "index.html")
        if name not in self.assets:
            raise HTTPException(404, "there is no such file")
        return _response(self.assets[name], POLICY, _TYPES[name.rpartition(".")[2]])

    async def inside(self, request: Request) -> Response:
        """The sentence at the cursor (``at``) of a text as particles. A form asks, so errors are pages, too."""
        try:
            return _response(await self._particles(request), INSIDE_POLICY)
        except (HTTPException, MacaronError, Busy, WorkerLost, TooLate) as error:
            status, message, headers = explain(error)
            body = f"<p>{escape(message[:1].upper() + message[1:])}</p>\n<p>Close this tab to return to the text.</p>"
            return _response(render_page("Look inside", body), INSIDE_POLICY, status=status, headers=headers)

    async def _particles(self, request: Request) -> str:
        fields, key = await self.service.admit(request)
        text, source, target = (string(fields, name) for name in ("q", "source", "target"))
        self.service.measure(request, [text], key)
        model = self.service.model(self.service.language(source), self.service.language(target))
        if not text:
            raise HTTPException(400, "there is no text")
        sentence = sentence_at(text, whole_number(fields, "at", 0, 10**8, 0), model.source)
        page: Any = await while_connected(request, self.service.engine.call(model.name, "particles", sentence, {}))
        return str(page)


def sentence_at(text: str, before: int, lang: str) -> str:
    """The sentence of a text that the cursor is in or behind.

    :param before: the number of characters before the cursor, without white space, which forms and sentences change
    """
    seen, found = 0, ""
    for piece in text_pieces(text, lang):
        if not piece.kept and (not found or seen < before):
            found = piece.text
        seen += len("".join(piece.text.split()))
    return found or " ".join(text.split())


def _response(
    content: bytes | str, policy: str, kind: str = "text/html", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    safe = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        # Asked for again after an update of the server; a sentence is kept nowhere.
        "Cache-Control": "no-cache" if policy == POLICY else "no-store",
    }
    return Response(content, status, {**(headers or {}), **safe}, media_type=kind)
