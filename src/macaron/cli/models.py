"""``macaron models``: the presets, their widths and parameters."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from typer import Option

from macaron.limits import LARGEST_VOCABULARY


def models(
    vocab_size: Annotated[
        int | None, Option(min=8, max=LARGEST_VOCABULARY, help="Vocabulary (default: 10,000; encoders 32,768).")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the model presets: layers, widths, parameters, and how far twins differ."""
    from macaron.models.summary import all_presets

    summaries = all_presets(vocab_size)
    if as_json:
        typer.echo(json.dumps({"models": [asdict(summary) for summary in summaries]}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Presets (parameters counted on the model)", title_justify="left")
    columns = ("model", "scheme", "layers", "hidden", "heads x width", "FFN widths", "norm", "vocabulary")
    for name in (*columns, "parameters", "vs. twin"):
        table.add_column(name, justify="left" if name in ("model", "scheme", "norm") else "right", no_wrap=True)
    for summary in summaries:
        table.add_row(
            summary.name,
            summary.scheme,
            summary.layers,
            str(summary.hidden_size),
            f"{summary.heads} x {'+'.join(map(str, summary.head_widths))}",
            "+".join(map(str, summary.inner_widths)),
            summary.norm,
            f"{summary.vocab_size:,}",
            f"{summary.parameters:,}",
            "" if summary.difference is None else f"{summary.difference:+.3%}",
        )
    # Into a pipe or a file no column is cut off.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
