"""``macaron score``: how probable a model finds given translations."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import BatchTokens, Device, Dtype, Output
from macaron.errors import MacaronError

_CHARACTERS = 20_000  # of targets that are scored at a time, to begin with
_NAMED = 5  # lines that a message names


def score(
    model: Annotated[Path, Argument(help="The folder of a translation model, or of a run.")],
    source: Annotated[Path, Option(help="Source lines (plain, .gz, .xz).")],
    target: Annotated[Path, Option(help="Their translations, likewise.")],
    output_file: Output = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Score given translations: log-probability, the same per token, number of tokens, with tabs between them.

    One line for each pair, in their order. Pairs that are too long for the model get nan.
    """
    check_early(models=[model], kinds=["translation"], reads=[source, target], writes=[output_file], device=device)

    from macaron.decode.forced import PairScorer
    from macaron.decode.stream import output

    scorer = PairScorer(model, device=device, dtype=dtype)
    number, long = 0, []
    with output(output_file) as file:
        for sources, targets in _pairs(source, target):
            for each in scorer.score(sources, targets, batch_tokens):
                number += 1
                if math.isnan(each.log_probability):
                    long.append(number)
                file.write(f"{each.log_probability:.6f}\t{each.per_token:.6f}\t{each.tokens}\n".encode())
            file.flush()
    if long:
        named = ", ".join(map(str, long[:_NAMED])) + (", ..." if len(long) > _NAMED else "")
        typer.echo(
            f"macaron: {len(long):,} pairs have more than {scorer.longest} tokens on a side and were not scored: "
            f"lines {named}",
            err=True,
        )


def _pairs(source: Path, target: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Source and target lines, some at a time; files of different length are refused where the shorter one ends."""
    from macaron.decode.stream import windows

    sources = (line for window in windows(source, _CHARACTERS) for line in window)
    number = 0
    for targets in windows(target, _CHARACTERS):
        found = list(islice(sources, len(targets)))
        yield found, targets[: len(found)]
        number += len(found)
        if len(found) < len(targets):
            raise _unequal(source, target, number)
    if next(sources, None) is not None:
        raise _unequal(target, source, number)


def _unequal(short: Path, long: Path, lines: int) -> MacaronError:
    return MacaronError(f"{short} ends after line {lines:,}, {long} goes on: a pair is the same line of both files")
