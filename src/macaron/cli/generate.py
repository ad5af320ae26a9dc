"""``macaron generate``: prompts in, continuations out."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import Device, Dtype, Input, Output
from macaron.cli.translate import hypothesis_lines, sampling_of
from macaron.errors import UsageError
from macaron.limits import LONGEST_TEXT, MOST_BEAMS

_CHARACTERS = 20_000  # of input that are continued at a time, to begin with


def generate(
    model: Annotated[Path, Argument(help="The folder of a language model, or of a run.")],
    input_file: Input = None,
    output_file: Output = None,
    max_length: Annotated[
        int | None, Option(min=1, max=LONGEST_TEXT, help="Longest continuation in tokens (default: 100).")
    ] = None,
    nbest: Annotated[
        int, Option(min=1, max=MOST_BEAMS, help="Samples of a prompt, after its number and a tab; with --sample.")
    ] = 1,
    sample: Annotated[bool, Option("--sample", help="Draw tokens instead of taking the best at each step.")] = False,
    temperature: Annotated[float | None, Option(help="For --sample: below 1 sharper, above 1 flatter.")] = None,
    top_k: Annotated[int | None, Option(help="For --sample: among the k best tokens.")] = None,
    top_p: Annotated[
        float | None, Option(help="For --sample: among the best that together have probability p.")
    ] = None,
    seed: Annotated[int | None, Option(help="For --sample: the same seed, the same output.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Continue lines of text with a language model. Each line gives one line: what follows it.

    An empty line gives a text from its beginning.
    """
    sampling = sampling_of(sample, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    if nbest > 1 and not sample:
        raise UsageError("--nbest is for --sample: without it a prompt has one continuation")
    check_early(models=[model], kinds=["language"], reads=[input_file], writes=[output_file], device=device)
    from macaron.decode.generator import Generator
    from macaron.decode.stream import output, windows

    generator, number = Generator(model, device=device, dtype=dtype), 1
    with output(output_file) as file:
        for prompts in windows(input_file, _CHARACTERS):
            for best in generator.generate_nbest(
                prompts, nbest=nbest, max_length=max_length, sampling=sampling, first_line=number
            ):
                file.write(hypothesis_lines(number, best, nbest, scores=False).encode("utf-8"))
                number += 1
            file.flush()
