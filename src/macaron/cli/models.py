"""``macaron models``: the presets, their widths and parameters."""

import json
from typing import Annotated

import typer
from typer import Option

from macaron.cli.options import AsJson, print_table
from macaron.limits import LARGEST_VOCABULARY


def models(
    vocab_size: Annotated[int | None, Option(min=8, max=LARGEST_VOCABULARY, help="Default: 10,000 or 32,768.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the model presets: layers, widths, parameters, and how far twins differ."""
    from macaron.models.summary import all_presets

    summaries = all_presets(vocab_size)
    if as_json:
        typer.echo(json.dumps({"models": summaries}, indent=1))
        return
    columns = ("model", "scheme", "layers", "hidden", "heads x width", "FFN widths", "norm", "vocabulary")
    rows = [
        (
            *(each["name"], each["scheme"], each["layers"], str(each["hidden_size"])),
            f"{each['heads']} x {'+'.join(map(str, each['head_widths']))}",
            "+".join(map(str, each["inner_widths"])),
            *(each["norm"], f"{each['vocab_size']:,}", f"{each['parameters']:,}"),
            "" if each["difference"] is None else f"{each['difference']:+.3%}",
        )
        for each in summaries
    ]
    title, left = "Presets (parameters counted on the model)", ("model", "scheme", "norm")
    print_table((*columns, "parameters", "vs. twin"), rows, left, title)
