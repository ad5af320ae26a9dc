"""``macaron predict``: texts in, labels and probabilities out."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from macaron.errors import MacaronError, UsageError

if TYPE_CHECKING:
    from macaron.tasks.classification_predict import Prediction, Predictor

_CHARACTERS = 20_000  # of input that are predicted at a time, to begin with
_ROWS = 1024


def predict(
    model: Annotated[Path, typer.Argument(help="A fine-tuned model folder, or a run's.", show_default=False)],
    input_file: Annotated[
        Path | None, typer.Option("--input", "-i", help="Texts (plain, .gz, .xz); default: standard input.")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; the file appears when it is complete.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="The input has a header, and this is the column of the text.")
    ] = None,
    text2: Annotated[str | None, typer.Option("--text2", help="Column of the second text.")] = None,
    kind: Annotated[
        Literal["lines", "tsv", "csv"] | None,
        typer.Option("--format", help="lines, tsv or csv; default: by the file's name, lines without --text."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object for each example.")] = False,
    max_length: Annotated[int | None, typer.Option("--max-length", min=8, help="Default: as in training.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option("--precision", help="auto: bfloat16 on a GPU.")
    ] = "auto",
) -> None:
    """Predict labels: "label, tab, probability" for each example, or the score alone.

    The input is one example a line (two texts with a tab between them), or TSV or CSV with a header: then the columns
    are those of the training file, or --text and --text2.
    """
    if text2 is not None and text is None:
        raise UsageError("--text2 needs --text")
    if kind == "lines" and text is not None:
        raise UsageError("--format lines has no columns: leave out --text")
    if input_file is not None:
        input_file.stat()  # a missing file is reported before the model is loaded

    from macaron.data.tabular import table_format
    from macaron.decode.stream import output
    from macaron.tasks.classification_predict import Predictor

    if kind is None:
        named = None if input_file is None else table_format(input_file)
        kind = named or ("lines" if text is None else "tsv")
    predictor = Predictor(model, device, precision, max_length)
    if kind == "lines":
        examples = _plain(predictor, input_file)
    else:
        columns = [text, *([] if text2 is None else [text2])] if text is not None else predictor.columns
        if not columns:
            raise UsageError("the model does not say which columns it takes: give --text, and --text2 for pairs")
        examples = _table(input_file, kind, [str(column) for column in columns])
    number = 1
    with output(output_file) as file:
        for texts in examples:
            for i, found in enumerate(predictor.predict(texts)):
                line = _json(number, [column[i] for column in texts], found) if as_json else _text(found)
                file.write(line.encode("utf-8"))
                number += 1
            file.flush()


def _plain(predictor: "Predictor", path: Path | None) -> Iterator[list[list[str]]]:
    """One example a line, as they arrive."""
    from macaron.decode.stream import windows

    name, number = "standard input" if path is None else str(path), 0
    for lines in windows(path, _CHARACTERS):
        if predictor.texts != 2:
            yield [lines]
            continue
        pairs = []
        for line in lines:
            number += 1
            parts = line.split("\t")
            if len(parts) != 2:
                raise MacaronError(
                    f"{name}, line {number}: the model takes two texts with a tab between them, here are {len(parts)}"
                )
            pairs.append(parts)
        yield [[a for a, _ in pairs], [b for _, b in pairs]]


def _table(path: Path | None, kind: Literal["tsv", "csv"], columns: list[str]) -> Iterator[list[list[str]]]:
    """Rows of a file with a header, some at a time."""
    from macaron.data.tabular import rows_of, select
    from macaron.decode.stream import windows

    name = "standard input" if path is None else str(path)
    lines = (line for window in windows(path, _CHARACTERS) for line in window)
    rows = (values for _, values in select(rows_of(lines, kind, name), name, columns))
    while some := list(islice(rows, _ROWS)):
        yield [list(column) for column in zip(*some, strict=True)]


def _text(found: "Prediction") -> str:
    return f"{found.score:.6g}\n" if found.label is None else f"{found.label}\t{found.score:.6f}\n"


def _json(number: int, texts: list[str], found: "Prediction") -> str:
    record: dict[str, object] = {"example": number, "texts": texts}
    if found.label is None:
        record["score"] = found.score
    else:
        record |= {"label": found.label, "probability": found.score, "probabilities": found.probabilities}
    return json.dumps(record, ensure_ascii=False) + "\n"
