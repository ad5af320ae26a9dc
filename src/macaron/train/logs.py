"""What a run says and writes down: metrics.jsonl always, TensorBoard if asked, a progress display."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from macaron.errors import MacaronError


class RunLog:
    """The first process's log; the others' is silent.

    :param keep_until: when a run is resumed, lines about later updates are dropped: they will be written again
    """

    def __init__(self, run: Path, speaks: bool, tensorboard: bool, keep_until: int | None) -> None:
        self.speaks = speaks
        self.console = Console(stderr=True, quiet=not speaks)
        self.display: Progress | None = None
        self.file = self.events = None
        if not speaks:
            return
        path = run / "metrics.jsonl"
        if keep_until is not None and path.exists():
            lines = [line for line in path.read_text().splitlines() if _update_of(line) <= keep_until]
            path.write_text("".join(f"{line}\n" for line in lines))
        self.file = path.open("a", buffering=1)
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MacaronError(
                    "train.tensorboard needs the package tensorboard: pip install 'macaron-net[tensorboard]', "
                    "or set train.tensorboard=false"
                ) from error
            self.events = SummaryWriter(str(run / "tensorboard"))
        if sys.stderr.isatty():
            self.display = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar = self.display.add_task("training", total=1.0)
            self.display.start()

    def metrics(self, update: int, values: dict[str, Any], share: float) -> None:
        """Write numbers down and show them; ``share`` of the run is done."""
        if self.file is None:
            return
        record = {"update": update, **{k: _plain(v) for k, v in values.items()}, "time": round(time.time(), 3)}
        self.file.write(json.dumps(record) + "\n")
        if self.events is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.events.add_scalar(name, value, update)
        line = _line(update, values)
        if self.display is not None:
            self.display.update(self.bar, completed=share, description=line)
            if "valid_loss" in values:
                self.console.print(line)
        else:
            self.console.print(line, soft_wrap=True, highlight=False)

    def say(self, text: str) -> None:
        """A line for the reader."""
        self.console.print(text, soft_wrap=True, highlight=False)

    def close(self) -> None:
        """Stop the display and close the files."""
        if self.display is not None:
            self.display.stop()
            self.display = None
        if self.events is not None:
            self.events.close()
            self.events = None
        if self.file is not None:
            self.file.close()
            self.file = None


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)["update"])
    except (json.JSONDecodeError, KeyError, ValueError):
        return sys.maxsize  # half a line that a crash left


_FORMATS = {
    "epoch": "epoch {}",
    "loss": "loss {:.3f}",
    "nll": "nll {:.3f}",
    "learning_rate": "lr {:.2e}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "time_left": "{} left",
    "valid_loss": "valid loss {:.4f}",
    "valid_nll": "valid nll {:.4f}",
    "valid_bleu": "valid BLEU {:.2f}",
}


def _line(update: int, values: dict[str, Any]) -> str:
    parts = [text.format(values[name]) for name, text in _FORMATS.items() if values.get(name) is not None]
    return " | ".join([f"update {update}", *parts])
