"""Errors that a user can act on, their exit codes, and the wording that messages share."""

import errno
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as shortened

#: Errors of the system that mean: no room for the output.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MacaronError(Exception):
    """Something in the input is wrong. The message names it and the remedy; the command prints it and exits."""

    exit_code = 1

    def __str__(self) -> str:
        return cut(super().__str__())


class UsageError(MacaronError):
    """The command was called wrongly."""

    exit_code = 2


class Interrupted(MacaronError):
    """The run was stopped by a signal, in good order."""

    exit_code = 130  # of Ctrl-C; who receives another signal sets it: 128 and its number


class CannotWrite(MacaronError):
    """A failed write; the message names the path as the user gave it."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, error)  # all arguments: a worker process sends the error to its parent
        self.path, self.error = path, error

    def __str__(self) -> str:
        remedy = "Free some space." if self.error.errno in FULL else "Choose another path."
        return cut(f"{self.path} cannot be written: {self.error.strerror or self.error}. {remedy}")


class NotFinite(MacaronError):
    """The numbers of a model overflow."""


class ProcessLost(MacaronError):
    """Another process of the same run has ended. Only that process knows the reason."""


def cut(text: str, most: int = 2000) -> str:
    """A text for a message. Of a long one the middle is left out: a damaged file has values of any length."""
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"


def shown(value: object) -> str:
    """A value for a message, in short. It never fails: an integer of 5000 digits has no repr."""
    try:
        return shortened(value)
    except (ValueError, RecursionError):
        return f"{type(value).__name__} too large to show"


def first_line(error: Exception) -> str:
    """What an error of a library says, in short."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def naming(what: object) -> Iterator[None]:
    """A context in which messages begin with what they are about: a file, a key."""
    try:
        yield
    except MacaronError as error:
        raise MacaronError(f"{what}: {error}") from None


def require(condition: bool, message: str) -> None:
    """Raise MacaronError unless a condition holds."""
    if not condition:
        raise MacaronError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` if a known name is similar, otherwise the list of known names."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def unknown(kind: str, name: str, known: Iterable[str]) -> MacaronError:
    """The error for a name that is not among the known ones. It suggests the nearest name, or lists all."""
    return MacaronError(f"unknown {kind} {name!r}{nearest(name, known)}")


def not_finite(folder: Path | None) -> NotFinite:
    """The error for a model, of a folder or in memory, whose numbers overflow."""
    name = "" if folder is None else f"{folder}: "
    return NotFinite(
        f"{name}the model gives scores that are not finite: its weights are damaged, or too large for this precision. "
        "Check its folder with macaron verify, or take another --dtype."
    )


def system_message(error: OSError) -> str:
    """The message for an error of the system that nothing has caught; a nameless write error is about the output."""
    full = error.errno in (*FULL, errno.EBADF)
    name = f"{error.filename}: " if error.filename else "cannot write the output: " if full else ""
    return cut(f"{name}{error.strerror or error}")


def log_failure(what: str, error: Exception) -> None:
    """Say on stderr where something failed, but not the error's message: it may quote a user's text."""
    places = "".join(traceback.format_tb(error.__traceback__)[-3:])
    print(f"macaron: {what} failed: {type(error).__name__}\n{places}", file=sys.stderr, flush=True)


def command_line(*arguments: str) -> str:
    """A command of ours, quoted for the shell, as this one was called: on the path or not, alone or by torchrun."""
    return shlex.join([*(_program() or ["macaron"]), *arguments])


def resume_command(run: Path) -> str:
    """The command that continues a training run."""
    return command_line("train", "--resume", "--out", str(run))


def same_command(*added: str) -> str:
    """The command that is running, with options that it does not have yet; in words where it is not one of ours."""
    if _program() is None:
        return " ".join(["the same command", *(["with", *added] if added else [])])
    return command_line(*sys.argv[1:], *(option for option in added if option not in sys.argv))


def _program() -> list[str] | None:
    """How ``macaron`` was called; None if this process is another program."""
    called, world = Path(sys.argv[0]), os.environ.get("WORLD_SIZE", "1")
    module = (called.parent.name, called.name) == ("macaron", "__main__.py")
    if not module and called.name != "macaron":
        return None
    if world != "1":
        alone = os.environ.get("LOCAL_WORLD_SIZE", world) == world
        return ["torchrun", *(["--standalone", "--nproc-per-node", world] if alone else ["..."]), "-m", "macaron"]
    program = sys.executable if module else sys.argv[0]
    name = Path(program).name
    # By its name where the shell finds it.
    return [name if shutil.which(name) == program else program, *(["-m", "macaron"] if module else [])]
