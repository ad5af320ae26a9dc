"""Files, translated as LibreTranslate's clients ask for it: kept in memory, and fetched once, not long after."""

import asyncio
import secrets
from pathlib import PurePath
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from macaron.decode.documents import ENDINGS
from macaron.serve.requests import string
from macaron.serve.service import Service


class TranslatedFiles:
    """Names and contents of files, by tokens that nobody guesses.

    :param seconds: until a file that nobody fetches is gone
    :param most: bytes of all files; of more, the oldest are gone
    """

    def __init__(self, seconds: float = 20 * 60, most: int = 64 << 20) -> None:
        self.seconds, self.most = seconds, most
        self._files: dict[str, tuple[str, bytes]] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; the token under which it is fetched."""
        token = secrets.token_urlsafe(24)
        self._files[token] = (name, content)
        while sum(len(each) for _, each in self._files.values()) > self.most:
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(self.seconds, self.fetch, token)
        return token

    def fetch(self, token: str) -> tuple[str, bytes] | None:
        """Name and content of a file, which is gone then; None if there is none."""
        return self._files.pop(token, None)


class Files:
    """Handlers of requests."""

    def __init__(self, service: Service) -> None:
        self.service, self.files = service, TranslatedFiles()

    def routes(self) -> list[Route]:
        """The paths."""
        return [
            Route("/translate_file", self._translate_file, methods=["POST"]),
            Route("/download_file/{token}/{name}", self._download_file),
        ]

    async def _translate_file(self, request: Request) -> Response:
        fields, key = await self.service.admit(request)
        file, source, target = fields.get("file"), string(fields, "source"), string(fields, "target")
        if not isinstance(file, UploadFile):
            raise HTTPException(400, "the parameter file must be a file, sent as multipart/form-data")
        path = PurePath((file.filename or "").replace("\\", "/"))
        format = ENDINGS.get(path.suffix.lower())
        if format is None:
            raise HTTPException(400, f"files of this format are not supported: {', '.join(ENDINGS)} are")
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise HTTPException(400, "the file is not UTF-8 text") from None
        options = {"format": format, "deadline": self.service.settings.file_deadline}
        [(translated, _, _)] = await self.service.translate(request, [text], source, target, **options)
        self.service.access.characters[key] += len(text)
        name = f"{path.stem}.{self.service.language(target)}{path.suffix}"
        token = self.files.keep(name, translated.text.encode())
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{token}/{quote(name, safe='')}"})

    async def _download_file(self, request: Request) -> Response:
        # A HEAD does not use the file up.
        file = self.files.fetch(request.path_params["token"]) if request.method == "GET" else None
        if file is None:
            raise HTTPException(404, "this file has been fetched already, has been removed, or never was here")
        # Never shown by a browser in the name of this server, whatever is in it.
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file[0], safe='')}",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return Response(file[1], media_type="application/octet-stream", headers=headers)
