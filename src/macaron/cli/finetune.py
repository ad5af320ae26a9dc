"""``macaron finetune``: a classifier or a score from a user's own TSV or CSV."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from macaron.cli.early import check_early
from macaron.cli.stopped import ready
from macaron.errors import UsageError
from macaron.files import check_unused, writing
from macaron.limits import LONGEST_TEXT, MOST_EXAMPLES


def finetune(
    model: Annotated[Path, typer.Argument(help="A pre-trained model folder, or a run's.", show_default=False)],
    train: Annotated[
        Path,
        typer.Option("--train", help="Examples: .tsv (tabs, no quoting) or .csv, with a header.", show_default=False),
    ],
    dev: Annotated[Path, typer.Option("--dev", help="Examples to score on, likewise.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The run's folder.", show_default=False)],
    text: Annotated[str, typer.Option("--text", help="Column of the text.")] = "text",
    text2: Annotated[str | None, typer.Option("--text2", help="Column of a second text.")] = None,
    label: Annotated[str, typer.Option("--label", help="Column of the label.")] = "label",
    regression: Annotated[bool, typer.Option("--regression", help="Labels are numbers to predict.")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=MOST_EXAMPLES, help="Examples in a batch.")
    ] = 32,
    rate: Annotated[
        float | None, typer.Option("--learning-rate", help="The highest; it falls to 0. Default: by the model's size.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the examples.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Order and dropout.")] = 1,
    weight_decay: Annotated[float, typer.Option("--weight-decay", min=0, help="Decoupled.")] = 0.0,
    clip_norm: Annotated[float, typer.Option("--clip-norm", min=0, help="Clip the gradient's norm (0: off).")] = 0.0,
    dropout: Annotated[
        float, typer.Option("--dropout", min=0, max=1, help="Of all layers, whatever the model's own is.")
    ] = 0.1,
    max_length: Annotated[
        int, typer.Option("--max-length", min=8, max=LONGEST_TEXT, help="Tokens; longer examples are cut.")
    ] = 256,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Swap the two texts half of the time.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option("--precision", help="auto: bfloat16 on a GPU.")
    ] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the layers: for long runs.")] = False,
) -> None:
    """Fine-tune an encoder on your own examples: classes, or a score, of one or two texts. RUN/model predicts.

    It is the model after the epoch with the best score on --dev.
    """
    if symmetric and text2 is None:
        raise UsageError("--symmetric swaps two texts: give --text2 as well")

    from macaron.data.tabular import read_table

    check_early(encoders=[model], reads=[train, dev], device=device, rate=rate)
    if (out / "results.json").exists() or not out.is_dir():  # of an unfinished run the files may be replaced
        check_unused(out, "give another --out")
    texts = [text] if text2 is None else [text, text2]
    for file in filter(Path.is_file, (train, dev)):  # a pipe can be read only once
        read_table(file, texts, label)
    from macaron.tasks.classification import FineTuning
    from macaron.tasks.finetune import FineTuner, TunerSettings
    from macaron.tasks.finetune_csv import finetune_csv

    settings = FineTuning(
        batch_size=batch_size,
        **({} if rate is None else {"learning_rate": rate}),
        epochs=epochs,
        seed=seed,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        symmetric=symmetric,
    )
    ready(model)
    tuner = TunerSettings(max_length, dropout, precision, compiled)

    def load() -> FineTuner:
        return FineTuner(model, device, tuner)

    with writing(out):
        typer.echo(finetune_csv(load, train, dev, texts, label, regression, settings, out, choose_rate=rate is None))
