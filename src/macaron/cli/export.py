"""``macaron export``: writes a model for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.files import check_unused

app = typer.Typer(no_args_is_help=True)
Model = Annotated[Path, Argument(help="A model folder, or the folder of a run.")]
Quantization = Literal["int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"]
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


@app.command()
def ctranslate2(
    model: Model,
    *,
    out: Out,
    quantization: Annotated[Quantization | None, Option(help="How matrices are stored; default: float32.")] = None,
) -> None:
    """Write a translation model for CTranslate2, which knows the Transformer's scheme alone."""
    check_early(models=[model], kinds=["translation"])
    check_unused(out, "choose another --out")
    from macaron.convert.to_ctranslate2 import export_ctranslate2

    typer.echo("\n".join(export_ctranslate2(model, out, quantization)))
