"""The command ``macaron``: one small file per verb. Verbs import torch themselves, when they run."""

import os
import sys
from importlib import import_module

import typer

from macaron.cli.convert import app as convert_app
from macaron.cli.guard import fail, guarded, occupy_stdout, stop_like_ctrl_c
from macaron.cli.ode import app as ode_app
from macaron.cli.recipe import app as recipe_app
from macaron.errors import MacaronError, system_message

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
#: In the order of ``macaron --help``. Each is a function in a file of its own, which has the same name.
_VERBS = """
    prepare train translate evaluate models demo doctor glue finetune predict embed score serve report particles
    compare twins verify
"""
for _verb in _VERBS.split():
    app.command()(guarded(getattr(import_module(f"macaron.cli.{_verb}"), _verb)))
app.add_typer(recipe_app, name="recipe")
app.add_typer(ode_app, name="ode")
app.add_typer(convert_app, name="convert")


def version(show: bool) -> None:
    """Print the version and leave."""
    if show:
        from macaron import __version__

        typer.echo(f"macaron {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: bool = typer.Option(False, "--version", "-V", callback=version, is_eager=True, help="Show the version."),
) -> None:
    """Train, decode and study Transformers written as splitting schemes."""


def busy() -> bool:
    """Whether other programs have been using this machine in the last minute."""
    try:
        return os.getloadavg()[0] > 0.5
    except (OSError, AttributeError):  # unknown, or a system without this number
        return True


def main() -> None:
    """Run the command; a user's mistake ends in one clear message, never in a traceback."""
    if sys.argv[1:2] != ["translate"] or busy():
        # Waiting threads sleep instead of spinning, unless the command is translate and the machine is idle (one
        # sentence is then 1.6 times faster). Next to other programs spinning makes two threads slower than one, and
        # long jobs may meet other load. The OpenMP runtime reads this when torch is loaded, which no verb has done yet.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    occupy_stdout()
    stop_like_ctrl_c()
    try:
        app(prog_name="macaron")
    except MacaronError as error:
        fail(error, str(error), error.exit_code)
    except OSError as error:
        fail(error, system_message(error), 1)
