"""``macaron models``: the presets, their widths and parameters."""

import json
import sys
from typing import Annotated

import typer


def models(
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", min=8, help="Vocabulary (default: 10,000; encoders 32,768).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the model presets: layers, widths, parameters, and how far twins differ."""
    from macaron.models.summary import all_presets

    summaries = all_presets(vocab_size)
    if as_json:
        typer.echo(json.dumps({"models": [summary.to_dict() for summary in summaries]}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Presets (parameters counted on the model)", title_justify="left")
    for name, justify in (
        ("model", "left"),
        ("scheme", "left"),
        ("layers", "right"),
        ("hidden", "right"),
        ("heads x width", "right"),
        ("FFN widths", "right"),
        ("norm", "left"),
        ("vocabulary", "right"),
        ("parameters", "right"),
        ("against its twin", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
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
