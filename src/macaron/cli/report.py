"""``macaron report``: a run folder in, a page about it out."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early, ready


def report(
    run: Annotated[Path, Argument(help="The folder of a run.")],
    out: Annotated[Path | None, Option(help="The page to write: FILE.html (default: RUN/report.html).")] = None,
    data: Annotated[Path | None, Option(help="Prepared data for the samples (default: as the recipe says).")] = None,
    samples: Annotated[bool, Option(help="Let the model translate or fill in a few sentences.")] = True,
) -> None:
    """Write a page about a run: recipe, curves, throughput, scores, samples, environment. One file, opens offline."""
    check_early(runs=[run], data=data)
    from macaron.lab.report.report_page import write_report

    ready(run)
    typer.echo(f"wrote {write_report(run, out, samples=samples, data=data)}", err=True)
