"""Downloads that are resumed after an interruption."""

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from macaron.errors import MacaronError
from macaron.files import alone, refusing
from macaron.json_files import Count, read_json
from macaron.locks import LOCK
from macaron.processes import Advance, Progress

BLOCK = 1 << 18
TIMEOUT = 60.0
#: Failures in a row without a single byte before giving up, with growing pauses between.
ATTEMPTS = 5
PAUSE = 1.0
#: Answers that may be different when asked again; all other 4xx and 5xx are final.
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


class _Note(TypedDict):
    """PATH.part.json: what the server said about the file."""

    url: str
    validator: str | None
    total: Count | None


def download(url: str, path: Path, checksum: str | None, progress: Progress) -> None:
    """Fetch a file, as ``PATH.part`` until it is complete and right; resumed if the server's file is still the same."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise MacaronError(f"{url}: only http and https addresses are fetched")
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    failures = 0
    with alone(path, path.with_name(f".{path.name}{LOCK}")), progress.step(f"fetching {path.name}", "bytes") as step:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                if _fetch_some(url, part, note, step):
                    break
                reason = "the connection was closed early"
            except urllib.error.HTTPError as error:
                reason = f"{error.code} {error.reason}"
                if error.code not in _TEMPORARY:
                    raise MacaronError(f"cannot fetch {url}: {reason}") from None
            except (ValueError, http.client.InvalidURL) as error:
                raise MacaronError(f"cannot fetch {url}: not an address ({error})") from None
            except (OSError, http.client.HTTPException) as error:  # URLError has its cause in `reason`
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            failures = 0 if part.exists() and part.stat().st_size > before else failures + 1
            if failures >= ATTEMPTS:
                raise MacaronError(f"cannot fetch {url}: {reason}")
            time.sleep(PAUSE * 2**failures / 2)
        if checksum is not None and (found := checksum_of(part, checksum)) != checksum:
            part.unlink()
            note.unlink(missing_ok=True)
            raise MacaronError(f"{url}: wrong checksum {found}, expected {checksum}. The download was deleted")
        part.replace(path)
        note.unlink(missing_ok=True)


def _fetch_some(url: str, part: Path, note: Path, step: Advance) -> bool:
    """Request the missing bytes; return whether the file is complete."""
    known: dict[str, Any] = {}
    with suppress(OSError, MacaronError):
        known = read_json(note, _Note)
    offset = part.stat().st_size if part.exists() and known.get("url") == url else 0
    if offset and known.get("total") == offset:
        return True
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "macaron"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if known["validator"] is not None:  # a file that has changed meanwhile is sent from its beginning
            request.add_header("If-Range", known["validator"])
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not offset:
            raise
        part.unlink()  # another file by now
        return False
    with response:
        start, total = _extent(response)
        if start and (start != offset or known.get("total") not in (None, total)):
            part.unlink(missing_ok=True)  # a range that was not asked for, or of another file
            return False
        offset = start
        tag = response.headers.get("ETag") or "W/"  # a weak tag does not guarantee the same bytes
        validator = response.headers.get("Last-Modified") if tag.startswith("W/") else tag
        path = part.with_suffix("")
        with refusing(path):
            note.write_text(json.dumps({"url": url, "validator": validator, "total": total}), "utf-8")
        step(offset, total=total)
        with part.open("ab" if offset else "wb") as file:
            while block := response.read(BLOCK):
                with refusing(path):
                    file.write(block)
                    file.flush()
                step(len(block))
                offset += len(block)
    return total is None or offset == total


def _extent(response: Any) -> tuple[int, int | None]:
    """The offset of the first byte in the response, and the size of the whole file if it is known."""
    if response.status != 206:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    span = re.match(r"bytes (\d+)-\d+/(\d*)", response.headers.get("Content-Range", ""))
    if span is None:
        return -1, None
    return int(span[1]), int(span[2]) if span[2] else None


def checksum_of(path: Path, like: str | None = None) -> str:
    """The checksum of a file, as ``sha256:...`` or with the algorithm of another checksum."""
    algorithm = like.partition(":")[0] if like else "sha256"
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"
