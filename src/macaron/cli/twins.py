"""``macaron twins``: one recipe with several schemes and seeds, trained and compared."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_recipe
from macaron.cli.options import Settings
from macaron.errors import UsageError
from macaron.limits import MOST_SEEDS


def twins(
    recipe: Annotated[Path, Argument(help="A recipe: a TOML file, or a name of `macaron recipe list`.")],
    out: Annotated[Path, Option(help="The folder for the runs and their page.")],
    schemes: Annotated[
        str,
        Option(
            help="Names of `macaron ode list` or control (lie-fg with half an FFN at both ends), separated by commas. "
            "In the decoder F becomes F H; ENCODER/DECODER gives it a scheme of its own."
        ),
    ] = "lie-fg,strang-gfg",
    seeds: Annotated[int, Option(min=1, max=MOST_SEEDS, help="Train with seeds 1 to N; a test needs 3.")] = 1,
    budget: Annotated[int | None, Option(min=1, help="Updates of every run, instead of the recipe's limits.")] = None,
    settings: Settings = None,
    allow_unequal: Annotated[
        bool, Option("--allow-unequal", help="Also train networks whose sizes differ by more than 0.5 %.")
    ] = False,
) -> None:
    """Train twins: equal in all but the scheme. Stop with Ctrl-C; the same command continues."""
    from macaron.ode import scheme
    from macaron.recipe import load_recipe

    # The recipe may have no limit. Before torch is imported: a mistake is reported at once.
    limit = {} if budget is None else {f"--budget {budget}": f"train.max_updates={budget}"}
    chosen = load_recipe(recipe, settings or [], options=limit)
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    if len(names) < 2:
        raise UsageError("--schemes needs at least two, separated by commas: lie-fg,strang-gfg")
    check_recipe(chosen, out, new=False)
    for part in (part for name in names for part in name.split("/") if part != "control"):
        scheme(part)
    from macaron.lab.twins import NUMBERS, PAGE, make_twins

    found = make_twins(chosen, names, seeds, out, budget=budget, allow_unequal=allow_unequal).run()
    if found is not None:
        typer.echo(found.sentence)
        typer.echo(f"\n{found.table()}\n")
        typer.echo(f"Page: {out / PAGE}    Numbers: {out / NUMBERS}")
