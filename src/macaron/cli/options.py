"""The options that several verbs have."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from macaron.limits import LONGEST_TEXT, MOST_BEAMS, MOST_TOKENS

_VERIFY = "Read all the data, even if it has not changed since it was last verified."
_SETTINGS = "Override a setting: section.key=value (repeatable); section.key= removes it."
_INPUT = "Text (plain, .gz, .xz); default: standard input."

Settings = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_SETTINGS)]
Verify = Annotated[bool, Option("--verify", help=_VERIFY)]
Input = Annotated[Path | None, Option("--input", "-i", help=_INPUT)]
Output = Annotated[Path | None, Option("--output", "-o", help="Where to write; the file appears when it is complete.")]
Beam = Annotated[int | None, Option(min=1, max=MOST_BEAMS, help="Beams (default: the model's, or 5).")]
LengthPenalty = Annotated[
    float | None, Option(help="Exponent of the length that scores are divided by (the model's, or 1).")
]
BatchTokens = Annotated[int | None, Option(min=1, max=MOST_TOKENS, help="Tokens in a batch, padding included.")]
MaxLength = Annotated[int | None, Option(min=8, max=LONGEST_TEXT, help="Tokens; longer texts are cut (the model's).")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1.")]
DtypeName = Literal["float32", "bfloat16", "float16", "float64"]
Dtype = Annotated[DtypeName | None, Option(help="float32, bfloat16, float16 or float64 (default: as saved).")]
Precision = Annotated[Literal["auto", "float32", "bfloat16"], Option(help="auto: bfloat16 on a GPU.")]
Int8 = Annotated[bool, Option("--int8", help="On the CPU: matrices in 8 bits, which is faster.")]
AsJson = Annotated[bool, Option("--json", help="Write JSON.")]
