"""The log of a run: metrics.jsonl, TensorBoard if asked for, and a progress display."""

import json
import math
import platform
import sys
import time
from contextlib import ExitStack
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from macaron.errors import MacaronError
from macaron.files import write_json, write_text
from macaron.json_files import Count, Record, parse_json, read_json
from macaron.settings import OTHERS, load_toml

#: How a line shows the numbers of a run, in this order.
_FORMATS, _ = load_toml(Path(__file__).with_suffix(".toml"))


class RunLog:
    """The log of the first process; the others log nothing.

    :param keep_until: when a run is resumed, lines of later updates are dropped: they will be written again
    :param continues: the resumed run is not over; the lines of its previous end are dropped, too
    """

    def __init__(
        self, run: Path, enabled: bool, tensorboard: bool, keep_until: int | None = None, continues: bool = True
    ) -> None:
        self.console = Console(stderr=True, quiet=not enabled)
        self.display: Progress | None = None
        self.file = self.events = None
        self._opened = ExitStack()
        if not enabled:
            return
        path = run / "metrics.jsonl"
        if keep_until is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if _stays(line, keep_until, continues)]
            write_text(path, "".join(f"{line}\n" for line in lines))
        self.file = self._opened.enter_context(path.open("a", buffering=1))
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MacaronError(
                    "train.tensorboard needs the package tensorboard: pip install 'macaron-net[tensorboard]', "
                    "or set train.tensorboard=false"
                ) from error
            purge = None if keep_until is None else keep_until + 1
            self.events = self._opened.enter_context(SummaryWriter(str(run / "tensorboard"), purge_step=purge))
        if sys.stderr.isatty():
            self.display = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                console=self.console,
            )
            self.bar = self.display.add_task("training", total=1.0)
            self._opened.enter_context(self.display)

    def metrics(self, update: int, values: dict[str, Any], share: float) -> None:
        """Write and show numbers; ``share`` of the run is done."""
        if self.file is None:
            return
        # JSON has no numbers that are not finite.
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        self.file.write(json.dumps({"update": update, **plain, "time": round(time.time(), 3)}) + "\n")
        if self.events is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.events.add_scalar(name, value, update)
        shown = [text.format(values[name]) for name, text in _FORMATS.items() if values.get(name) is not None]
        line = " | ".join([f"update {update}", *shown])
        if self.display is not None:
            self.display.update(self.bar, completed=share, description=line)
            if "valid_loss" in values or "parts" in values:
                self.say(line)
        elif "final" not in values:
            self.say(line)

    def say(self, text: str) -> None:
        """Print a line on stderr."""
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def close(self) -> None:
        """Stop the display and close the files."""
        self._opened.close()


def environment() -> dict[str, Any]:
    """The machine, the versions of the packages and the command, as JSON-able values."""
    found = {each.name: each.version for each in reversed([*distributions()])}  # of two, the first on the path
    packages = ("macaron-net", "torch", "transformers", "tokenizers", "safetensors", "numpy", "sacrebleu")
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {name: found.get(name, "not installed") for name in packages},
        "command": sys.argv[1:],
    }


def note_start(path: Path, start: dict[str, Any]) -> None:
    """Append to the list of a run's starts: a resumed run has several, possibly on different machines."""
    try:
        earlier: list[Any] = read_json(path, list[Any])
    except (FileNotFoundError, MacaronError) as error:  # the first one, or damaged
        earlier = []
        if isinstance(error, MacaronError):
            print(f"{error}. The earlier starts are lost.", file=sys.stderr)
    write_json(path, [*earlier, start])


class _Line(TypedDict):
    update: Count


def _stays(line: str, keep_until: int, continues: bool) -> bool:
    try:
        record: Record = parse_json(line, "metrics.jsonl", Annotated[_Line, OTHERS], finite=False)
    except MacaronError:
        return False  # an incomplete line that a crash left
    of_the_end = "final" in record or (continues and "end" in record)
    return bool(record["update"] <= keep_until) and not of_the_end
