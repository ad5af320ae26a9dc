"""``macaron particles``: the words of a sentence as particles that a model moves."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.errors import UsageError


def particles(
    model: Annotated[Path, Argument(help="A model folder or a run's folder.")],
    sentence: Annotated[str, Argument(help="The sentence.")],
    out: Annotated[Path, Option("--out", "-o", help="FILE.html (a page), .json (its data), .png or .gif.")],
    model2: Annotated[Path | None, Option(help="A second model, shown beside the first.")] = None,
    target: Annotated[str | None, Option(help="The decoder's input; default: the model's own translation.")] = None,
    part: Annotated[
        Literal["encoder", "decoder", "both"], Option(help="Part of a translation model to show.")
    ] = "both",
    view: Annotated[
        Literal["raw", "normalised"] | None,
        Option(help="For .png and .gif: states as they are (default: raw), or after the final norm."),
    ] = None,
) -> None:
    """Show the words of a sentence as particles: how every sub-step of every layer moves them.

    For translation models and encoders. Two models are shown side by side, aligned where their tokens are the same;
    give --target to have the same words in both decoders.
    """
    from macaron.lab.particles.particles_page import check_out, write

    check_out(out, view)
    if not sentence.strip():
        raise UsageError("the sentence is empty: give some words in quotes")
    if target is not None and not target.strip():
        raise UsageError("--target is empty: give a translation, or leave it out")
    if target is not None and part == "encoder":
        raise UsageError("--target is for the decoder: leave it out, or --part encoder")
    parts: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder") if part == "both" else (part,)

    check_early(models=[model, model2])
    from macaron.lab.particles.build_data import build_data

    models = [model] if model2 is None else [model, model2]
    write(out, build_data(models, sentence, target=target, parts=parts), view)
    typer.echo(f"wrote {out}", err=True)
