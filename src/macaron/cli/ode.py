"""``macaron ode``: the splitting schemes, their equations, and their orders, computed and measured."""

import json
import sys
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from typer import Argument, Option

from macaron.cli.options import AsJson, print_table

app = typer.Typer(help="Splitting schemes: list, show, measure and plot them; trajectories.", no_args_is_help=True)


@app.command("list")
def list_schemes(as_json: AsJson = False) -> None:
    """List the named schemes with their computed order and their sub-steps."""
    from macaron.ode import ALIASES, names, scheme
    from macaron.ode.describe import steps_text, summary

    schemes = [scheme(name) for name in names()]
    if as_json:
        _print_json({"schemes": [summary(entry) for entry in schemes]})
        return
    alias = {name: short for short, name in ALIASES.items()}
    rows = []
    for entry in schemes:
        # One line per scheme: `show` prints a long one in full.
        steps = shorten(steps_text(entry), 56, placeholder=" ...")
        rows.append((entry.name, alias.get(entry.name, ""), str(entry.order), f"{entry.leading_error:.2g}", steps))
    print_table(("scheme", "alias", "order", "error", "sub-steps"), rows, left=("scheme", "alias", "sub-steps"))


@app.command()
def show(
    name: Annotated[str, Argument(help="A name, an alias, or a scheme as JSON.")], as_json: AsJson = False
) -> None:
    """Show the equations of a scheme's layer, its order and its sub-layers."""
    from macaron.ode import scheme
    from macaron.ode.describe import report, summary

    chosen = scheme(name)
    if as_json:
        _print_json(summary(chosen))
    else:
        typer.echo(report(chosen))


@app.command()
def orders(
    names: Annotated[list[str] | None, Argument(help="Schemes; by default all of two operators.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the local order of every scheme with every integrator of its sub-flows."""
    from rich.console import Console
    from rich.progress import track

    from macaron.ode import order_table, scheme, two_operator_names
    from macaron.ode.measure import METHODS

    chosen = [scheme(name) for name in names or two_operator_names()]
    # Progress is for a terminal only.
    hidden = not sys.stderr.isatty()
    data = order_table(track(chosen, "measuring", console=Console(stderr=True), transient=True, disable=hidden))
    if as_json:
        _print_json(data)
        return
    schemes = data["schemes"]
    rows = [(each["name"], str(each["order"]), *map("{:.2f}".format, each["local_order"].values())) for each in schemes]
    print_table(("scheme", "order", *METHODS), rows, left=("scheme",))
    typer.echo("order: computed from the scheme. Other columns: local order, measured, by integrator of the sub-flows.")
    typer.echo("In theory: min(order of the scheme, order of the integrator) + 1.")


@app.command()
def plot(
    out: Annotated[Path, Option(help="The page to write: FILE.html.")],
    names: Annotated[list[str] | None, Argument(help="NAME or NAME:INTEGRATOR; by default a selection.")] = None,
) -> None:
    """Plot the local error against the step, with the measured slopes as a table."""
    from macaron.lab.ode_pages import ORDER_SELECTION, write_order_page
    from macaron.lab.page import check_page_path

    check_page_path(out)
    write_order_page(out, names or ORDER_SELECTION)
    typer.echo(f"wrote {out}", err=True)


@app.command()
def trajectories(
    out: Annotated[Path, Option(help="The page to write: FILE.html.")],
    names: Annotated[list[str] | None, Argument(help="NAME or NAME:INTEGRATOR; default: Lie and Strang.")] = None,
    steps: Annotated[int, Option(help="Number of steps to draw at first: 1, 2, 4, 8, 16, 32.")] = 4,
    seed: Annotated[int | None, Option(min=0, help="Seed of the particle system.")] = None,
) -> None:
    """Draw the trajectories of particles under splitting schemes and the exact flow, with a slider for the steps."""
    from macaron.errors import UsageError
    from macaron.lab.ode_pages import write_trajectory_page
    from macaron.lab.page import check_page_path
    from macaron.ode.trajectories import SEED, STEPS

    if steps not in STEPS:
        raise UsageError(f"--steps is one of {', '.join(map(str, STEPS))}, not {steps}")
    check_page_path(out)
    write_trajectory_page(out, names or (), SEED if seed is None else seed, steps)
    typer.echo(f"wrote {out}", err=True)


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
