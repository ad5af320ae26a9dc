"""``macaron recipe``: the recipes that come with Macaron."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

app = typer.Typer(help="The recipes that come with Macaron: list, show, copy them.", no_args_is_help=True)
Name = Annotated[str, Argument(help="A name of `macaron recipe list`.")]


@app.command("list")
def list_recipes() -> None:
    """List the recipes. `macaron prepare`, `train` and `twins` take their names."""
    from macaron.shipped import names, title

    width = max(map(len, names()))
    for name in names():
        typer.echo(f"{name:{width}}  {title(name)}")


@app.command()
def show(name: Name) -> None:
    """Print a recipe: every key has a comment."""
    from macaron.shipped import shipped

    typer.echo(shipped(name).read_text(encoding="utf-8"), nl=False)


@app.command()
def copy(
    name: Name,
    path: Annotated[Path | None, Argument(help="A file or a folder (default: NAME.toml here).")] = None,
) -> None:
    """Copy a recipe, to edit it."""
    from macaron.shipped import copy as copy_recipe

    typer.echo(f"wrote {copy_recipe(name, path)}")
