"""What several verbs share: options, and tables for the terminal."""

import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from macaron.limits import LONGEST_TEXT, MOST_BEAMS, MOST_TOKENS

_VERIFY = "Read all the data, even if it has not changed since it was last verified."
_SETTINGS = "Override a setting: section.key=value (repeatable); section.key= removes it."
_INPUT = "Text (plain, .gz, .xz); default: standard input."

Settings = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_SETTINGS)]
Verify = Annotated[bool, Option("--verify", help=_VERIFY)]
Input = Annotated[Path | None, Option("--input", "-i", help=_INPUT)]
Output = Annotated[Path | None, Option("--output", "-o", help="Where to write; the file appears when it is complete.")]
Beam = Annotated[int | None, Option(min=1, max=MOST_BEAMS, help="Beams (default: the model's, or 5).")]
LengthPenalty = Annotated[float | None, Option(help="Scores are divided by length^this (default: the model's, or 1).")]
BatchTokens = Annotated[int | None, Option(min=1, max=MOST_TOKENS, help="Tokens in a batch, padding included.")]
MaxLength = Annotated[int | None, Option(min=8, max=LONGEST_TEXT, help="Tokens; longer texts are cut (the model's).")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1.")]
DtypeName = Literal["float32", "bfloat16", "float16", "float64"]
Dtype = Annotated[DtypeName | None, Option(help="float32, bfloat16, float16 or float64 (default: as saved).")]
Precision = Annotated[Literal["auto", "float32", "bfloat16"], Option(help="auto: bfloat16 on a GPU.")]
Int8 = Annotated[bool, Option("--int8", help="On the CPU: matrices in 8 bits, which is faster.")]
AsJson = Annotated[bool, Option("--json", help="Write JSON.")]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str], title: str = "") -> None:
    """Print a table; columns that are not in ``left`` are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if column in left else "right", no_wrap=i == 0 or bool(title))
    for row in rows:
        table.add_row(*row)
    # A pipe or a file has no width: no column is cut off.
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as printed:
        console.print(table)
    # Not printed by rich itself, which ends the program with an error if the reader of a pipe has gone.
    typer.echo(printed.get(), nl=False)
