"""``macaron embed``: lines of text in, their vectors out."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import AsJson, Device, Input, MaxLength, Precision
from macaron.errors import UsageError

_CHARACTERS = 20_000  # of input that are embedded at a time, to begin with


def embed(
    model: Annotated[Path, Argument(help="The folder of a text encoder, or of a run.")],
    input_file: Input = None,
    output_file: Annotated[
        Path | None, Option("--output", "-o", help="Where to write; FILE.npy is a NumPy array of float32.")
    ] = None,
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
