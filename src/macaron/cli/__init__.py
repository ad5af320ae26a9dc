"""The command ``macaron``: one small file per verb. Verbs import torch themselves, when they run."""

import os
import sys
from importlib import import_module
from pathlib import Path

import typer

from macaron.cli.convert import app as convert_app
from macaron.cli.guard import fail, guarded, occupy_stdout, stop_like_ctrl_c
from macaron.cli.ode import app as ode_app
from macaron.cli.recipe import app as recipe_app
from macaron.errors import MacaronError, system_message

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
#: In the order of ``macaron --help``: a file and its function, whose name the file mostly has.
_VERBS = """
    prepare train translate lines.generate evaluate models lab.demo lab.doctor glue finetune lines.predict lines.embed
    lines.score serve lab.report lab.particles lab.compare lab.twins verify export
"""
for _verb in _VERBS.split():
    _file, _, _function = _verb.rpartition(".")
    app.command()(guarded(getattr(import_module(f"macaron.cli.{_file or _function}"), _function)))
for _name, _group in {"recipe": recipe_app, "ode": ode_app, "convert": convert_app}.items():
    for _command in _group.registered_commands:
        _command.callback = _command.callback and guarded(_command.callback)
    app.add_typer(_group, name=_name)


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
    """Whether other programs use this machine: they have in the last minute and, where the system tells, do now."""
    loads = Path("/proc/loadavg")
    try:
        running = int(loads.read_text(encoding="ascii").split()[3].partition("/")[0]) if loads.exists() else 2
        return os.getloadavg()[0] > 0.5 and running > 1
    except (OSError, AttributeError):  # unknown, or a system without these numbers
        return True


def choose_waiting(verb: str) -> None:
    """How the threads of OpenMP wait for each other, unless the environment says it.

    A thread that sleeps is slow to wake: on an idle machine threads that spin first are faster than those that sleep
    at once, next to other programs slower (docs/performance.md). The processes of ``serve`` run next to each other.
    OpenMP reads this when torch is loaded, which no verb has done yet.
    """
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        if verb != "serve" and busy():
            os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        else:
            os.environ["GOMP_SPINCOUNT"] = "1000" if verb == "serve" else "10000"


def main() -> None:
    """Run the command; a user's mistake ends in one clear message, never in a traceback."""
    choose_waiting(sys.argv[1] if len(sys.argv) > 1 else "")
    # Otherwise torch looks for plug-ins of other devices, which no verb uses, in all installed packages.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    occupy_stdout()
    stop_like_ctrl_c()
    try:
        app(prog_name="macaron")
    except MacaronError as error:
        fail(error, str(error), error.exit_code)
    except OSError as error:
        fail(error, system_message(error), 1)
