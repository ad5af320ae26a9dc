"""``macaron convert``: converts foreign checkpoints to model folders."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.files import check_unused

app = typer.Typer(no_args_is_help=True)


@app.callback()
def convert() -> None:
    """Convert foreign checkpoints to model folders."""


@app.command()
def fairseq(
    checkpoint: Annotated[Path, Argument(help="A translation, BERT or classifier checkpoint of the authors' code.")],
    *,
    dictionary: Annotated[Path, Option("--dict", help="The dict.txt that the model was trained with.")],
    out: Annotated[Path, Option(help="The model folder to write.")],
    bpe: Annotated[Path | None, Option(help="The BPE codes (subword-nmt), to split words.")] = None,
    pipeline: Annotated[Literal["spaces", "moses"], Option(help="Input: spaced words; moses: plain text.")] = "spaces",
    source_lang: Annotated[str | None, Option(help="For moses; by default the checkpoint's.")] = None,
    target_lang: Annotated[str | None, Option(help="For moses; by default the checkpoint's.")] = None,
    cased: Annotated[bool, Option("--cased", help="For moses: do not lower-case (IWSLT14 is lower-cased).")] = False,
    normalize: Annotated[bool, Option("--normalize", help="For moses: normalise punctuation (IWSLT14: no).")] = False,
    force: Annotated[bool, Option("--force", help="Replace an existing model folder.")] = False,
) -> None:
    """Convert a checkpoint of the authors' fairseq code. No pickled code is run.

    Without --bpe and --pipeline the folder's tokenizer splits at spaces and joins "@@ ".
    """
    check_early(reads=[checkpoint, dictionary, bpe])
    if not force:
        check_unused(out, "choose another path, or replace it with --force")
    from macaron.convert import convert_fairseq

    lines = convert_fairseq(
        checkpoint,
        dictionary,
        out,
        codes=bpe,
        pipeline=pipeline,
        source_lang=source_lang,
        target_lang=target_lang,
        lower=not cased,
        normalize=normalize,
        force=force,
    )
    typer.echo("\n".join(lines))


@app.command()
def huggingface(
    folder: Annotated[Path, Argument(help="A folder of transformers: MarianMT (OPUS-MT), BERT, GPT-2.")],
    *,
    out: Annotated[Path, Option(help="The model folder to write.")],
    source_lang: Annotated[str | None, Option(help="Of a translation model; by default the one it names.")] = None,
    target_lang: Annotated[str | None, Option(help="Of a translation model; by default the one it names.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an existing model folder.")] = False,
) -> None:
    """Convert a folder that save_pretrained of transformers wrote. No pickled code is run."""
    check_early(reads=[folder / "config.json"])
    if not force:
        check_unused(out, "choose another path, or replace it with --force")
    from macaron.convert import convert_huggingface

    lines = convert_huggingface(folder, out, source_lang=source_lang, target_lang=target_lang, force=force)
    typer.echo("\n".join(lines))
