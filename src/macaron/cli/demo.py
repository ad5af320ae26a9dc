"""``macaron demo``: the main job, small."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    recipe: Annotated[Path, typer.Option("--recipe", help="The demo's recipe.")] = Path("recipes/demo.toml"),
    runs: Annotated[Path, typer.Option("--runs", help="The folder for its runs.")] = Path("runs"),
    minutes: Annotated[
        float, typer.Option("--minutes", min=1, help="Time for everything; a slow machine trains fewer updates.")
    ] = 6.0,
) -> None:
    """Train a Transformer and a Macaron of equal size on a generated corpus, translate, compare: a few minutes."""
    from macaron.lab.demo import Demo

    Demo(recipe, runs, typer.echo, minutes).run()
