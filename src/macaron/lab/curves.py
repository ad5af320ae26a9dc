"""Training curves of runs."""

import json
from pathlib import Path
from typing import Any

#: Colours that colour-blind readers can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """What a run wrote to metrics.jsonl."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def plot_curves(runs: dict[str, Path], file: Path, title: str, *, loss: str = "nll", against: str = "update") -> None:
    """Draw the training (thin) and validation (thick) losses of runs.

    :param loss: ``nll`` of translation, ``mlm`` of pre-training
    :param against: ``update``, or ``seconds`` of the whole command
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for (name, run), colour in zip(runs.items(), COLOURS, strict=False):
        metrics = read_metrics(run)
        train = [(m[against], m[loss]) for m in metrics if loss in m]
        valid = [(m[against], m[f"valid_{loss}"]) for m in metrics if f"valid_{loss}" in m]
        # A run that was stopped at once has written neither.
        last = f"{name}, {valid[-1][1]:.3f} at the end" if valid else name
        axes.plot(*_columns(train), color=colour, linewidth=1, alpha=0.45)
        axes.plot(*_columns(valid), color=colour, linewidth=2, marker="o", markersize=4, label=last)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(against)
    axes.set_ylabel(f"{loss} per token (nats)")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(title="thick: validation, thin: training", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
