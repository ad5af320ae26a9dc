"""A hub on this machine: as much of the Hugging Face Hub's protocol as uploading and loading models needs.

Repositories are in memory: for each commit all files. Large files go by LFS (batch, upload, verify); what is stored is
compared with its digest. Every request is noted, as is what this hub does not know about a repository.
"""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "hf_loopback"
#: Files with these ends are stored by LFS, as the hub's .gitattributes say.
LARGE = (".safetensors",)


@dataclass
class Hub:
    """The state of a hub, and its address."""

    address: str = ""
    #: By repository: commits, oldest first, each with its number and the content of its files.
    repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def files(self, repository: str) -> dict[str, bytes]:
        """The files of the last commit."""
        return self.repositories[repository][-1][1]

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        """Add a commit; returns its number."""
        commits = self.repositories[repository]
        number = hashlib.sha1(f"{repository}{len(commits)}".encode()).hexdigest()
        commits.append((number, files))
        return number

    def at(self, request: Request) -> tuple[str, str, dict[str, bytes]] | None:
        """Repository, commit and files that an address names."""
        repository = f"{request.path_params['owner']}/{request.path_params['name']}"
        revision = request.path_params.get("revision", "main")
        for number, files in reversed(self.repositories.get(repository, [])):
            if revision in ("main", number):
                return repository, number, files
        return None


def missing(what: str) -> Response:
    """What the hub says where something is not there: ``Repo``, ``Revision`` or ``Entry``."""
    return JSONResponse({"error": f"{what} not found"}, 404, {"X-Error-Code": f"{what}NotFound"})


def application(hub: Hub) -> Starlette:
    """The routes."""

    def allowed(request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {TOKEN}"

    async def create(request: Request) -> Response:
        given = await request.json()
        if not allowed(request):
            return JSONResponse({"error": "no token"}, 401)
        repository = f"{given['organization'] or 'me'}/{given['name']}"
        answer = {"url": f"{hub.address}/{repository}", "name": repository}
        if repository in hub.repositories:
            return JSONResponse({**answer, "error": "You already created this model repo"}, 409)
        hub.repositories[repository] = []
        hub.commit(repository, {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})
        return JSONResponse(answer)

    async def validate(request: Request) -> Response:
        content = (await request.json())["content"]
        try:
            metadata = yaml.safe_load(content.split("---")[1]) if content.startswith("---") else {}
            wrong = [] if isinstance(metadata, dict) else ["the metadata are no mapping"]
        except yaml.YAMLError as error:
            wrong = [str(error)]
        return JSONResponse({"errors": [{"message": text} for text in wrong], "warnings": []}, 400 if wrong else 200)

    async def preupload(request: Request) -> Response:
        found, given = hub.at(request), await request.json()
        if found is None or not allowed(request):
            return missing("Repo")
        modes = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for each in given["files"]
        ]
        return JSONResponse({"files": modes})

    async def batch(request: Request) -> Response:
        given = await request.json()
        assert (given["operation"], given["hash_algo"]) == ("upload", "sha256")
        if not allowed(request) or "basic" not in given["transfers"]:
            return JSONResponse({"error": "no token, or no transfer that is known here"}, 401)
        answers: list[dict[str, Any]] = [{"oid": each["oid"], "size": each["size"]} for each in given["objects"]]
        for each in answers:
            if each["oid"] not in hub.objects:
                where = f"{hub.address}/lfs/{each['oid']}"
                each["actions"] = {"upload": {"href": where, "header": {}}, "verify": {"href": f"{where}/verify"}}
        return JSONResponse({"transfer": "basic", "objects": answers})

    async def put(request: Request) -> Response:
        content, oid = await request.body(), request.path_params["oid"]
        if hashlib.sha256(content).hexdigest() != oid:
            return JSONResponse({"error": "other content"}, 400)
        hub.objects[oid] = content
        return Response()

    async def verify(request: Request) -> Response:
        given = await request.json()
        kept = hub.objects.get(request.path_params["oid"])
        right = kept is not None and given == {"oid": request.path_params["oid"], "size": len(kept)}
        return Response(status_code=200 if right else 404)

    async def commit(request: Request) -> Response:
        found = hub.at(request)
        if found is None or not allowed(request):
            return missing("Repo")
        repository, _, before = found
        files = dict(before)
        for line in (await request.body()).splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = hub.objects[value["oid"]]
                assert value["size"] == len(files[value["path"]])
            else:
                assert item["key"] == "header", item["key"]
        number = hub.commit(repository, files)
        return JSONResponse({"commitOid": number, "commitUrl": f"{hub.address}/{repository}/commit/{number}"})

    async def information(request: Request) -> Response:
        found = hub.at(request)
        if found is None:
            return missing("Repo")
        repository, number, files = found
        siblings = [{"rfilename": name} for name in sorted(files)]
        about = {"id": repository, "modelId": repository, "sha": number, "private": False, "tags": []}
        return JSONResponse({**about, "downloads": 0, "likes": 0, "siblings": siblings})

    async def tree(request: Request) -> Response:
        found = hub.at(request)
        if found is None:
            return missing("Repo")
        start = request.path_params.get("path", "").rstrip("/")
        inside = {name: each for name, each in found[2].items() if not start or name.startswith(f"{start}/")}
        if start and not inside:
            return missing("Entry")
        return JSONResponse(
            [
                {"type": "file", "path": name, "size": len(each), "oid": hashlib.sha1(each).hexdigest()}
                for name, each in sorted(inside.items())
            ]
        )

    async def resolve(request: Request) -> Response:
        found = hub.at(request)
        if found is None:
            return missing("Repo")
        content = found[2].get(request.path_params["path"])
        if content is None:
            return missing("Entry")
        etag = hashlib.sha256(content).hexdigest()
        return Response(content, headers={"ETag": f'"{etag}"', "X-Repo-Commit": found[1], "Accept-Ranges": "bytes"})

    async def otherwise(request: Request) -> Response:
        if "/me/" in request.url.path:  # the client asks other things, too, and does without an answer
            hub.unknown.append(f"{request.method} {request.url.path}")
        return JSONResponse({"error": "this hub does not know this"}, 404)

    model = "/api/models/{owner}/{name}"
    return Starlette(
        routes=[
            Route("/api/repos/create", create, methods=["POST"]),
            Route("/api/validate-yaml", validate, methods=["POST"]),
            Route(f"{model}/preupload/{{revision}}", preupload, methods=["POST"]),
            Route(f"{model}/commit/{{revision}}", commit, methods=["POST"]),
            Route(f"{model}/revision/{{revision}}", information),
            Route(f"{model}/tree/{{revision}}", tree),
            Route(f"{model}/tree/{{revision}}/{{path:path}}", tree),
            Route(model, information),
            Route("/{owner}/{name}.git/info/lfs/objects/batch", batch, methods=["POST"]),
            Route("/lfs/{oid}", put, methods=["PUT"]),
            Route("/lfs/{oid}/verify", verify, methods=["POST"]),
            Route("/{owner}/{name}/resolve/{revision}/{path:path}", resolve),
            Route("/{path:path}", otherwise, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
        ]
    )


@contextmanager
def running() -> Iterator[Hub]:
    """A hub on a free port."""
    hub = Hub()
    app = application(hub)

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            hub.requests.append(f"{scope['method']} {scope['path']}")
        await app(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(noted, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    hub.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield hub
    finally:
        server.should_exit = True
        thread.join()
