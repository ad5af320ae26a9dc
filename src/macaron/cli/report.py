"""``macaron report``: a run folder in, a page about it out."""

from pathlib import Path
from typing import Annotated

import typer

from macaron.cli.early import check_early
from macaron.cli.stopped import ready


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page to write: FILE.html (default: RUN/report.html).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Prepared data for the samples (default: as the recipe says).")
    ] = None,
    samples: Annotated[
        bool, typer.Option("--samples/--no-samples", help="Let the model translate or fill in a few sentences.")
    ] = True,
) -> None:
    """Write a page about a run: recipe, curves, throughput, scores, samples, environment. One file, opens offline."""
    check_early(runs=[run], data=data)
    from macaron.lab.report.report_page import write_report

    ready(run)
    typer.echo(f"wrote {write_report(run, out, samples=samples, data=data)}", err=True)
