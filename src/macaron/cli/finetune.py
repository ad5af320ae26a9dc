"""``macaron finetune``: a classifier or a score from a user's own TSV or CSV."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import Device, Precision
from macaron.errors import UsageError
from macaron.files import check_unused, writing
from macaron.limits import LONGEST_TEXT, MOST_EXAMPLES


def finetune(
    model: Annotated[Path, Argument(help="A pre-trained model folder, or a run's.")],
    train: Annotated[Path, Option(help="Examples: .tsv (tabs, no quoting) or .csv, with a header.")],
    dev: Annotated[Path, Option(help="Examples to score on, likewise.")],
    out: Annotated[Path, Option(help="The run's folder.")],
    text: Annotated[str, Option(help="Column of the text.")] = "text",
    text2: Annotated[str | None, Option(help="Column of a second text.")] = None,
    label: Annotated[str, Option(help="Column of the label.")] = "label",
    regression: Annotated[bool, Option("--regression", help="Labels are numbers to predict.")] = False,
    batch_size: Annotated[int, Option(min=1, max=MOST_EXAMPLES, help="Examples in a batch.")] = 32,
    rate: Annotated[float | None, Option("--learning-rate", help="The highest (default: by the model's size).")] = None,
    epochs: Annotated[int, Option(min=1, help="Passes over the examples.")] = 3,
    seed: Annotated[int, Option(min=0, help="Order and dropout.")] = 1,
    weight_decay: Annotated[float, Option(min=0, help="Decoupled.")] = 0.0,
    clip_norm: Annotated[float, Option(min=0, help="Clip the gradient's norm (0: off).")] = 0.0,
    dropout: Annotated[float, Option(min=0, max=1, help="Of all layers, whatever the model's own is.")] = 0.1,
    max_length: Annotated[int, Option(min=8, max=LONGEST_TEXT, help="Tokens; longer examples are cut.")] = 256,
    symmetric: Annotated[bool, Option("--symmetric", help="Swap the two texts half of the time.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Fine-tune an encoder on your own examples: classes, or a score, of one or two texts. RUN/model predicts.

    It is the model after the epoch with the best score on --dev.
    """
    if symmetric and text2 is None:
        raise UsageError("--symmetric swaps two texts: give --text2 as well")

    from macaron.data.tabular import read_table

    check_early(models=[model], kinds=["encoder", "language"], reads=[train, dev], device=device, rate=rate)
    if (out / "results.json").exists() or not out.is_dir():  # of an unfinished run the files may be replaced
        check_unused(out, "give another --out")
    texts = [text] if text2 is None else [text, text2]
    tables = {name: read_table(file, texts, label) for name, file in (("train", train), ("dev", dev))}
    from macaron.tasks.classification import FineTuning
    from macaron.tasks.finetune import FineTuner, finetune_csv

    highest = FineTuning.learning_rate if rate is None else rate
    settings = FineTuning(batch_size, highest, epochs, seed, weight_decay, clip_norm=clip_norm, symmetric=symmetric)
    load = partial(FineTuner, model, device, precision, max_length, dropout)
    with writing(out):
        typer.echo(finetune_csv(load, tables, texts, label, regression, settings, out, choose_rate=rate is None))
