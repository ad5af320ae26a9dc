"""``macaron train``: a recipe in, a run folder out."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_recipe, importing
from macaron.cli.options import Settings, Verify
from macaron.errors import MacaronError, UsageError

STARTED = time.monotonic()  # the wall clock of a run counts from here, imports and compilation included


def train(
    out: Annotated[Path, Option(help="The run's folder.")],
    recipe: Annotated[Path | None, Argument(help="A TOML file, or a name of `macaron recipe list`.")] = None,
    settings: Settings = None,
    minutes: Annotated[float | None, Option(help="train.max_minutes: the schedule is fitted to this time.")] = None,
    source: Annotated[Path | None, Option("--from", metavar="MODEL", help="A run or a model to start from.")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the stopped run in --out.")] = False,
    verify: Verify = False,
) -> None:
    """Train a model. Stop it with Ctrl-C at any time; --resume continues exactly where it stopped.

    The folder ends with the model in model/ and a page about the run in report.html.
    """
    from macaron.recipe import load_recipe

    stored = out / "recipe.toml"
    if recipe is None and not resume:
        raise UsageError("give a recipe; or --resume, to continue the run in --out")
    if recipe is None and not stored.is_file():
        raise MacaronError(f"{out}: no run to continue, there is no {stored}. Start one: macaron train RECIPE")
    if resume and not stored.is_file() and os.environ.get("RANK", "0") == "0":
        typer.echo(f"{out}: no run to continue, so a new one starts", err=True)
    limit = {} if minutes is None else {f"--minutes {minutes:g}": f"train.max_minutes={minutes}"}
    # Before torch is imported: a mistake is reported at once.
    chosen = load_recipe(recipe or stored, settings or [], source, limit)
    check_recipe(chosen, out, new=not resume, verify=verify)

    with importing(chosen.train.device):
        from macaron.tasks.run import run

    if not run(chosen, out, resume, STARTED):
        return

    from macaron.lab.report import write_report

    try:
        typer.echo(f"report: {write_report(out)}", err=True)
    except (MacaronError, OSError) as error:  # the model is there: the training has not failed
        typer.echo(f"no report could be written ({error}); try again with: macaron report {out}", err=True)
