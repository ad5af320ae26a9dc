"""``macaron demo``: the whole workflow on a small corpus."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option


def demo(
    recipe: Annotated[
        Path | None, Option(help="A recipe like `macaron recipe show demo`, which is the default.")
    ] = None,
    runs: Annotated[Path, Option(help="The folder for its runs.")] = Path("runs"),
    minutes: Annotated[float, Option(min=1, help="Time for everything; a slow machine trains fewer updates.")] = 6.0,
) -> None:
    """Train a Transformer and a Macaron of equal size on a generated corpus, translate, compare: a few minutes."""
    from macaron.recipe import load_recipe
    from macaron.shipped import shipped

    load_recipe(recipe or shipped("demo"))  # before torch is imported: a mistake is reported at once

    from macaron.lab.demo import run_demo

    run_demo(recipe or shipped("demo"), runs, typer.echo, minutes)
