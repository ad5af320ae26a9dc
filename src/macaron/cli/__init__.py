"""The command ``macaron``: one small file per verb. Verbs import torch themselves, when they run."""

import os
import sys

import typer

from macaron.cli.compare import compare
from macaron.cli.convert import app as convert_app
from macaron.cli.demo import demo
from macaron.cli.doctor import doctor
from macaron.cli.embed import embed
from macaron.cli.evaluate import evaluate
from macaron.cli.finetune import finetune
from macaron.cli.glue import glue
from macaron.cli.guard import fail, guarded, occupy_stdout, stop_like_ctrl_c
from macaron.cli.models import models
from macaron.cli.ode import app as ode_app
from macaron.cli.particles import particles
from macaron.cli.predict import predict
from macaron.cli.prepare import prepare
from macaron.cli.recipe import app as recipe_app
from macaron.cli.report import report
from macaron.cli.score import score
from macaron.cli.serve import serve
from macaron.cli.train import train
from macaron.cli.translate import translate
from macaron.cli.twins import twins
from macaron.cli.verify import verify
from macaron.errors import MacaronError, system_message

app = typer.Typer(
    help="Train, decode and study Transformers written as splitting schemes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


for _verb in (
    prepare,
    train,
    translate,
    evaluate,
    models,
    demo,
    doctor,
    glue,
    finetune,
    predict,
    embed,
    score,
    serve,
    report,
    particles,
    compare,
    twins,
    verify,
):
    app.command()(guarded(_verb))
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
