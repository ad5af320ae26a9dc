"""``macaron export``: writes a model for other programs."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.files import check_unused

app = typer.Typer(no_args_is_help=True)
Model = Annotated[Path, Argument(help="A model folder, or the folder of a run.")]
Out = Annotated[Path, Option(help="The folder to write.")]


@app.callback()
def export() -> None:
    """Write a model for other programs: ONNX, CTranslate2."""


@app.command()
def onnx(model: Model, *, out: Out) -> None:
    """Write any model as ONNX, with its tokenizer, and compare it with ours if onnxruntime is installed."""
    check_early(models=[model])
    check_unused(out, "choose another --out")
    from macaron.convert.to_onnx import export_onnx

    typer.echo("\n".join(export_onnx(model, out)))
