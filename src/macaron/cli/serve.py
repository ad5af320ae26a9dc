"""``macaron serve``: models behind HTTP."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.errors import UsageError
from macaron.limits import MOST_PROCESSES

#: In seconds.
DAY = 86_400


def serve(
    models: Annotated[list[str], Argument(help="Model folders, or folders of runs; de-en=FOLDER names the languages.")],
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any that is free.")] = 5000,
    api_keys: Annotated[Path | None, Option(metavar="FILE", help="Answer only those with a key of this file.")] = None,
    requests_per_minute: Annotated[int, Option(min=0, help="Of one key or client; 0: any number.")] = 0,
    text_limit: Annotated[int, Option(min=1, help="Characters of a request.")] = 20_000,
    origins: Annotated[
        list[str] | None, Option("--cors", metavar="ORIGIN", help="Pages that may ask (default: all).")
    ] = None,
    queue: Annotated[int, Option(min=1, help="Requests that may wait; more are refused.")] = 1000,
    deadline: Annotated[float, Option(min=0.1, max=DAY, help="Seconds until a request is given up.")] = 30.0,
    grace: Annotated[float, Option(min=0.1, max=DAY, help="Seconds to finish in after SIGTERM.")] = 20.0,
    patience: Annotated[float, Option(min=0.1, max=DAY, help="Seconds that a client has to send a request.")] = 60.0,
    workers: Annotated[int, Option(min=0, max=MOST_PROCESSES, help="Processes; 0: by the device and its cores.")] = 0,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    int8: Annotated[bool, Option("--int8", help="On the CPU: matrices in 8 bits, which is faster.")] = False,
) -> None:
    """Serve models: a page at /, and the APIs of LibreTranslate, DeepL and Hugging Face."""
    needed = ("starlette", "uvicorn", "python_multipart", "prometheus_client", "py3langid")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise UsageError(f"serving needs {missing[0]}: pip install 'macaron-net[serve]'")
    from macaron.serve.engine import ServeSettings

    settings = ServeSettings(
        host=host,
        port=port,
        device=device,
        int8=int8,
        workers=workers,
        queue=queue,
        deadline=deadline,
        grace=grace,
        patience=patience,
        api_keys=api_keys,
        requests_per_minute=requests_per_minute,
        text_limit=text_limit,
        origins=tuple(origins or ["*"]),
    )
    folders = [Path(each.partition("=")[2] or each) for each in models]
    check_early(models=folders, reads=[api_keys], device=device)
    import asyncio
    import os

    from macaron.models.catalogue import Catalogue
    from macaron.serve import app

    with asyncio.Runner() as runner:
        runner.run(app.serve(settings, Catalogue(models)))
        os._exit(0)  # a thread that still cuts a document, for nobody now, would be waited for
