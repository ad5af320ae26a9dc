"""``macaron generate | predict | embed | score``: verbs that answer lines of text."""

import json
import math
from collections.abc import Iterator
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early, importing
from macaron.cli.options import AsJson, BatchTokens, Device, Dtype, Input, Int8, MaxLength, Output, Precision
from macaron.cli.translate import hypothesis_lines, sampling_of
from macaron.errors import MacaronError, UsageError
from macaron.limits import LONGEST_TEXT, MOST_BEAMS

#: Characters of input that are answered at a time, to begin with; rows of a table at a time.
_CHARACTERS, _ROWS = 20_000, 1024
_NAMED = 5  # lines that a message names


def generate(
    model: Annotated[Path, Argument(help="The folder of a language model, or of a run.")],
    input_file: Input = None,
    output_file: Output = None,
    max_length: Annotated[int | None, Option(min=1, max=LONGEST_TEXT, help="In tokens (default: 100).")] = None,
    nbest: Annotated[int, Option(min=1, max=MOST_BEAMS, help="Samples of each line; with --sample.")] = 1,
    sample: Annotated[bool, Option("--sample", help="Draw tokens instead of taking the best at each step.")] = False,
    temperature: Annotated[float | None, Option(help="For --sample: below 1 sharper, above 1 flatter.")] = None,
    top_k: Annotated[int | None, Option(help="For --sample: among the k best tokens.")] = None,
    top_p: Annotated[float | None, Option(help="For --sample: among the best with total probability p.")] = None,
    seed: Annotated[int | None, Option(help="For --sample: the same seed, the same output.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    int8: Int8 = False,
) -> None:
    """Continue lines of text with a language model. Each line gives one line: what follows it.

    An empty line gives a text from its beginning.
    """
    sampling = sampling_of(sample, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    if nbest > 1 and not sample:
        raise UsageError("--nbest is for --sample: without it a prompt has one continuation")
    check_early(models=[model], kinds=["language"], reads=[input_file], writes=[output_file], device=device)
    with importing(device):
        from macaron.decode.generator import Generator
        from macaron.decode.stream import output, windows

    generator, number = Generator(model, device=device, dtype=dtype, int8=int8), 1
    with output(output_file) as file:
        for prompts in windows(input_file, _CHARACTERS):
            for best in generator.generate_nbest(
                prompts, nbest=nbest, max_length=max_length, sampling=sampling, first_line=number
            ):
                file.write(hypothesis_lines(number, best, nbest, scores=False).encode("utf-8"))
                number += 1
            file.flush()


def predict(
    model: Annotated[Path, Argument(help="A fine-tuned model folder, or a run's.")],
    input_file: Input = None,
    output_file: Output = None,
    text: Annotated[str | None, Option(help="The input has a header, and this is the column of the text.")] = None,
    text2: Annotated[str | None, Option(help="Column of the second text.")] = None,
    kind: Annotated[
        Literal["lines", "tsv", "csv"] | None, Option("--format", help="Of the input (default: by the file's name).")
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

    with importing(device):
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
    from macaron.data.tabular import rows_of, select
    from macaron.decode.stream import windows

    lines = (line for window in windows(path, _CHARACTERS) for line in window)
    rows = (values for _, values in select(rows_of(lines, kind, name), name, columns, keep_empty=True))
    while some := list(islice(rows, _ROWS)):
        yield some


def embed(
    model: Annotated[Path, Argument(help="The folder of a text encoder, or of a run.")],
    input_file: Input = None,
    output_file: Annotated[Path | None, Option("--output", "-o", help="Where to write; .npy: a NumPy array.")] = None,
    as_json: AsJson = False,
    export: Annotated[Path | None, Option(help="Write a folder for sentence-transformers, and embed nothing.")] = None,
    max_length: MaxLength = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Turn lines of text into vectors of length 1: the mean of the states of a line's tokens.

    Each line gives one line of numbers with tabs between them, an empty line too.
    """
    array = output_file is not None and output_file.suffix == ".npy"
    if array and as_json:
        raise UsageError("--json writes text: leave it out, or choose another --output than a .npy file")
    if export is not None and (input_file or output_file or as_json):
        raise UsageError("--export writes the model and embeds nothing: leave out --input, --output and --json")
    check_early(models=[model], kinds=["encoder"], reads=[input_file], writes=[output_file], device=device)
    if export is not None and export.exists():
        raise UsageError(f"{export} exists already: give another --export")

    with importing(device):
        import numpy as np

        from macaron.decode.stream import output, windows
        from macaron.tasks.embedder import Embedder

    embedder = Embedder(model, device, precision, max_length)
    if export is not None:
        embedder.export(export)
        typer.echo(f"{export}: {embedder.size} numbers a text, up to {embedder.max_length} tokens")
        return
    count = 0
    header = {"descr": "<f4", "fortran_order": False}
    with output(output_file) as file:
        if array:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (0, embedder.size)})
        for lines in windows(input_file, _CHARACTERS):
            vectors = embedder.embed(lines)
            if array:
                file.write(vectors.astype("<f4").tobytes())
            else:
                for number, (line, vector) in enumerate(zip(lines, vectors.tolist(), strict=True), count + 1):
                    record = {"line": number, "text": line, "embedding": vector}
                    row = "\t".join(f"{value:.7g}" for value in vector)
                    file.write((json.dumps(record, ensure_ascii=False) if as_json else row).encode() + b"\n")
                file.flush()
            count += len(lines)
        if array:
            # NumPy leaves room in the header for more rows.
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (count, embedder.size)})


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

    with importing(device):
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
        said = f"{len(long):,} pairs have more than {scorer.longest} tokens on a side and were not scored"
        typer.echo(f"macaron: {said}: lines {named}", err=True)


def _pairs(source: Path, target: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Source and target lines, some at a time; files of different length are refused where the shorter one ends."""
    from macaron.decode.stream import windows

    lines = ((line for window in windows(path, _CHARACTERS) for line in window) for path in (source, target))
    pairs, number = zip_longest(*lines), 0
    while some := list(islice(pairs, _ROWS)):
        whole = [pair for pair in some if None not in pair]
        yield [pair[0] for pair in whole], [pair[1] for pair in whole]
        number += len(whole)
        if len(whole) < len(some):
            short, long = (source, target) if some[-1][0] is None else (target, source)
            raise MacaronError(f"{short} ends after line {number:,}, {long} goes on: a pair is the same line of both")
