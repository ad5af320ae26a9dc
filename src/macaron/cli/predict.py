"""``macaron predict``: texts in, labels and probabilities out."""

import json
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import AsJson, Device, Input, MaxLength, Output, Precision
from macaron.errors import MacaronError, UsageError

_CHARACTERS = 20_000  # of input that are predicted at a time, to begin with
_ROWS = 1024


def predict(
    model: Annotated[Path, Argument(help="A fine-tuned model folder, or a run's.")],
    input_file: Input = None,
    output_file: Output = None,
    text: Annotated[str | None, Option(help="The input has a header, and this is the column of the text.")] = None,
    text2: Annotated[str | None, Option(help="Column of the second text.")] = None,
    kind: Annotated[
        Literal["lines", "tsv", "csv"] | None,
        Option("--format", help="lines, tsv or csv; default: by the file's name, lines without --text."),
    ] = None,
    as_json: AsJson = False,
    max_length: MaxLength = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Predict labels: "label, tab, probability" for each example, or the score alone; nothing for an empty line.

    The input is one example a line (two texts with a tab between them), or TSV or CSV with a header: then the columns
    are those of the training file, or --text and --text2.
    """
    if text2 is not None and text is None:
        raise UsageError("--text2 needs --text")
    if kind == "lines" and text is not None:
        raise UsageError("--format lines has no columns: leave out --text")
    check_early(models=[model], kinds=["encoder", "language"], reads=[input_file], writes=[output_file], device=device)

    from macaron.data.tabular import table_format
    from macaron.decode.stream import output
    from macaron.tasks.classifier import Predictor

    if kind is None:
        named = None if input_file is None else table_format(input_file)
        kind = named or ("lines" if text is None else "tsv")
    predictor = Predictor(model, device, precision, max_length)
    name = "standard input" if input_file is None else str(input_file)
    if kind == "lines":
        examples = _plain(input_file, name, 2 if predictor.texts == 2 else 1)
    else:
        columns = [text, *([] if text2 is None else [text2])] if text is not None else predictor.columns
        if not columns:
            raise UsageError("the model does not say which columns it takes: give --text, and --text2 for pairs")
        examples = _table(input_file, name, kind, [str(column) for column in columns])
    number = 1
    with output(output_file) as file:
        for rows in filter(None, examples):
            for row, found in zip(rows, predictor.predict_rows(rows), strict=True):
                if as_json:
                    each = found or dict.fromkeys(predictor.keys)
                    line = json.dumps({"example": number, "texts": row, **each}, ensure_ascii=False)
                elif found is None:
                    line = ""  # an empty line stays empty: the output has as many lines as the input
                else:
                    score, label = found.get("score"), found.get("label")
                    line = f"{label}\t{found['probability']:.6f}" if score is None else f"{score:.6g}"
                file.write(f"{line}\n".encode())
                number += 1
            file.flush()


def _plain(path: Path | None, name: str, texts: int) -> Iterator[list[list[str]]]:
    """One example a line, as they arrive; two texts with a tab between them."""
    from macaron.decode.stream import windows

    numbers = count(1)
    for lines in windows(path, _CHARACTERS):
        rows = [line.split("\t") if texts == 2 and line.strip() else [line] * texts for line in lines]
        for row, number in zip(rows, numbers, strict=False):
            if len(row) != texts:
                raise MacaronError(f"{name}, line {number}: expected two texts separated by a tab, found {len(row)}")
        yield rows


def _table(path: Path | None, name: str, kind: Literal["tsv", "csv"], columns: list[str]) -> Iterator[list[list[str]]]:
    """Rows of a file with a header, some at a time."""
    from macaron.data.tabular import rows_of, select
    from macaron.decode.stream import windows

    lines = (line for window in windows(path, _CHARACTERS) for line in window)
    rows = (values for _, values in select(rows_of(lines, kind, name), name, columns, keep_empty=True))
    while some := list(islice(rows, _ROWS)):
        yield some
