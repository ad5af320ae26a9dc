"""``macaron compare``: runs side by side, and a verdict that claims no more than its tests support."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import BatchTokens, Beam, Device, Dtype, LengthPenalty


def compare(
    runs: Annotated[list[Path], Argument(help="Folders of runs; the others are compared with the first.")],
    out: Annotated[Path, Option(help="The page (HTML).")],
    data: Annotated[Path | None, Option(help="A folder that macaron prepare wrote (default: the first run's).")] = None,
    split: Annotated[str, Option(help="valid or test.")] = "test",
    json_file: Annotated[Path | None, Option("--json", help="Write all numbers here.")] = None,
    vary: Annotated[
        list[str] | None, Option(help="A setting that differs on purpose, such as train.learning_rate (repeatable).")
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Compare runs: fairness, scores, tests of the differences. Runs that differ only in the seed form one kind."""
    from macaron.lab.page import check_page_path

    check_early(runs=runs, data=data, split=split, pages=[out, json_file], device=device, length_penalty=length_penalty)
    check_page_path(out)
    from macaron.evaluate.stored import Search
    from macaron.lab.compare.comparison import write_comparison

    search = Search(beam, length_penalty, device, dtype, batch_tokens)
    say = partial(typer.echo, err=True)
    found = write_comparison(runs, data, split, out, json_file=json_file, search=search, vary=vary or [], say=say)
    typer.echo(found.sentence)
    typer.echo(f"\n{found.table()}\n")
    typer.echo(f"Page: {out}" + (f"    Numbers: {json_file}" if json_file else ""))
