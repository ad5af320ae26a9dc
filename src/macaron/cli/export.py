"""``macaron export``: writes a model for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.errors import UsageError
from macaron.files import check_unused

_TARGET = "onnx: any model; ctranslate2: translation models, of the Transformer's scheme alone."
_QUANTIZATION = "How ctranslate2 stores matrices; default: float32."
Quantization = Literal["int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"]


def export(
    target: Annotated[Literal["onnx", "ctranslate2"], Argument(help=_TARGET)],
    model: Annotated[Path, Argument(help="A model folder, or the folder of a run.")],
    *,
    out: Annotated[Path, Option(help="The folder to write.")],
    quantization: Annotated[Quantization | None, Option(help=_QUANTIZATION)] = None,
) -> None:
    """Write a model for other programs, with its tokenizer, and compare it with ours."""
    check_early(models=[model], kinds=["translation"] if target == "ctranslate2" else [])
    check_unused(out, "choose another --out")
    if target == "onnx":
        if quantization is not None:
            raise UsageError("--quantization is for ctranslate2: leave it out")
        from macaron.convert.to_onnx import export_onnx

        lines = export_onnx(model, out)
    else:
        from macaron.convert.to_ctranslate2 import export_ctranslate2

        lines = export_ctranslate2(model, out, quantization)
    typer.echo("\n".join(lines))
