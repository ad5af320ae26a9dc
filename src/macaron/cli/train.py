"""``macaron train``: a recipe in, a run folder out."""

import time
from pathlib import Path
from typing import Annotated

import typer

from macaron.errors import MacaronError

STARTED = time.monotonic()  # the wall clock of a run counts from here, imports and compilation included


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML); see recipes/.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The run's folder.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a setting: section.key=value (repeatable); section.key= removes it.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", help="The same as --set train.max_minutes=N: the schedule is fitted to this time."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="MODEL", help="Start from a model: a run or a model folder.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
) -> None:
    """Train a model. Stop it with Ctrl-C at any time; --resume continues exactly where it stopped.

    The folder ends with the model in model/ and a page about the run in report.html.
    """
    from macaron.recipe import load_recipe

    if source is not None and not source.is_dir() and not resume:  # a run is resumed without it
        raise MacaronError(f"--from {source}: no such folder. Give a run or a model folder.")
    changes = [*(settings or []), *([] if minutes is None else [f"train.max_minutes={minutes}"])]
    chosen = load_recipe(recipe, changes, source)  # before torch is imported: a mistake is reported at once

    from macaron.tasks.run import run

    if not run(chosen, out, resume, STARTED):
        return

    from macaron.lab.report.report_page import write_report

    try:
        typer.echo(f"report: {write_report(out)}", err=True)
    except (MacaronError, OSError) as error:  # the model is there: the training has not failed
        typer.echo(f"no report could be written ({error}); try again with: macaron report {out}", err=True)
