"""The command ``macaron``: one small file per verb. Verbs import torch and transformers themselves, when they run."""

import os
import sys

import typer

from macaron.cli.convert import app as convert_app
from macaron.cli.evaluate import evaluate
from macaron.cli.models import models
from macaron.cli.ode import app as ode_app
from macaron.cli.prepare import prepare
from macaron.cli.train import train
from macaron.cli.translate import translate
from macaron.errors import MacaronError, UsageError

app = typer.Typer(
    help="Train, decode and study Transformers written as splitting schemes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ode_app, name="ode")
app.add_typer(convert_app, name="convert")
for verb in (prepare, train, translate, evaluate, models):
    app.command()(verb)


def version(show: bool) -> None:
    """Print the version and leave."""
    if show:
        from macaron import __version__

        typer.echo(f"macaron {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Show the version."),
) -> None:
    """Train, decode and study Transformers written as splitting schemes."""


def main() -> None:
    """Run the command; a user's mistake ends in one clear message, never in a traceback."""
    # Threads that wait should sleep, not spin: where other programs run too, spinning makes two threads slower than
    # one. The OpenMP runtime reads this when torch is loaded, which no verb has done yet.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except UsageError as error:
        _fail(str(error), 2)
    except MacaronError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail("stopped by Ctrl-C", 130)
    except BrokenPipeError:
        # The reader of our output went away (`macaron ... | head`): not an error of ours, and nothing to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # A missing file, no permission, a full disk: the system's own words name the file.
        name = f"{error.filename}: " if error.filename else ""
        _fail(f"{name}{error.strerror or error}", 1)


def _fail(message: str, code: int) -> None:
    typer.echo(f"macaron: {message}", err=True)
    sys.exit(code)
