"""``macaron translate``: lines of text in, their translations out."""

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early, importing
from macaron.cli.options import AsJson, BatchTokens, Beam, Device, Dtype, Input, Int8, LengthPenalty, Output
from macaron.errors import MacaronError, UsageError
from macaron.files import one_line
from macaron.limits import LONGEST_TEXT, MOST_BEAMS, MOST_PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from macaron.decode.settings import Hypothesis, Sampling
    from macaron.decode.translator import Translator

_CHARACTERS = 4  # characters per token, approximately


def translate(
    model: Annotated[Path, Argument(help="A model folder, or the folder of a run.")],
    input_file: Input = None,
    output_file: Output = None,
    document: Annotated[Path | None, Option(metavar="FILE", help="Translate a document: .txt, .html, .srt.")] = None,
    corpus: Annotated[Path | None, Option(metavar="FILE", help="Make a training corpus of a text; with --out.")] = None,
    out: Annotated[Path | None, Option(metavar="PREFIX", help="For --corpus: PREFIX.de and PREFIX.en.")] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    max_length: Annotated[
        int | None,
        Option(min=1, max=LONGEST_TEXT, help="Longest translation in tokens (default: the model's, or 200)."),
    ] = None,
    one_per_line: Annotated[bool, Option("--one-per-line", help="A line is one sentence, translated whole.")] = False,
    nbest: Annotated[int, Option(min=1, max=MOST_BEAMS, help="Best translations; with --one-per-line.")] = 1,
    scores: Annotated[bool, Option("--scores", help="Write the score and a tab before a translation.")] = False,
    as_json: AsJson = False,
    tag: Annotated[str | None, Option(help="A tag that the model was trained with: domain, target language.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Take the best token at each step (beam 1).")] = False,
    sample: Annotated[bool, Option("--sample", help="Draw tokens instead of searching for the best.")] = False,
    temperature: Annotated[float | None, Option(help="For --sample: below 1 sharper, above 1 flatter.")] = None,
    top_k: Annotated[int | None, Option(help="For --sample: among the k best tokens.")] = None,
    top_p: Annotated[float | None, Option(help="For --sample: among the best with total probability p.")] = None,
    seed: Annotated[int | None, Option(help="For --sample: the same seed, the same output.")] = None,
    long_lines: Annotated[
        Literal["split", "refuse", "truncate"], Option(help="Sentences longer than --max-source-length.")
    ] = "split",
    max_source_length: Annotated[
        int | None, Option(min=8, max=LONGEST_TEXT, help="In tokens (default: 200, or --max-length if more).")
    ] = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    dtype: Dtype = None,
    threads: Annotated[int | None, Option(min=1, max=MOST_PROCESSES, help="CPU threads.")] = None,
    int8: Int8 = False,
) -> None:
    """Translate lines of text, from standard input to standard output as they arrive.

    Each line gives one line. It is split into sentences; blank lines, indentation, list marks and tabs are kept.
    """
    sampling = sampling_of(sample, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    if greedy and (sample or (beam or 1) > 1 or nbest > 1):
        raise UsageError("--greedy has one beam and one result: leave out --sample, --beam and --nbest")
    if sample and beam is not None:
        raise UsageError("--sample has no beams: ask for several samples with --nbest")
    if not sample and beam is not None and nbest > beam:
        raise UsageError(f"--nbest {nbest} needs a beam of {nbest}: give --beam {nbest} or more")
    if nbest > 1 and not one_per_line:
        raise UsageError("--nbest is for whole lines, not for lines split into sentences: add --one-per-line")

    alone = not (input_file or output_file or nbest > 1 or scores or as_json or long_lines != "split")
    _check_corpus(corpus, out, alone)
    others = input_file or corpus or one_per_line or nbest > 1 or scores or as_json
    text = None if document is None else _read_document(document, alone=not others)

    check_early(
        models=[model],
        kinds=["translation"],
        reads=[input_file, corpus],
        writes=[output_file],
        device=device,
        length_penalty=length_penalty,
    )
    with importing("cpu" if corpus is not None or (int8 and device == "auto") else device):
        from macaron.decode.degenerate import NotedLines
        from macaron.decode.stream import output, windows
        from macaron.decode.text_pieces import LineRefused
        from macaron.decode.translator import Translator

    load = partial(Translator, model, dtype=dtype, threads=threads, int8=int8, tag=tag)
    options: dict[str, Any] = {
        "beam": 1 if greedy else beam,
        "length_penalty": length_penalty,
        "max_length": max_length,
        "sampling": sampling,
        "batch_tokens": batch_tokens,
        "max_source_length": max_source_length,
    }
    if corpus is not None and out is not None:
        _make_corpus(load, device, corpus, out, options)
        return
    translator = load(device=device)
    if document is not None and text is not None:
        _translate_document(translator, document, text, output_file, {**options, "long_lines": long_lines})
        return
    options |= {"long_lines": long_lines, "nbest": nbest, "one_per_line": one_per_line}
    noted, number = NotedLines(), 1
    filled = translated = False
    with output(output_file) as file:
        for window in windows(input_file, _CHARACTERS * (batch_tokens or translator.batch_tokens)):
            lines, refused = window, None
            try:
                found = translator.translate_nbest(lines, first_line=number, **options)
            except LineRefused as error:
                lines, refused = window[: error.index], error  # what came before the long line is still translated
                found = translator.translate_nbest(lines, first_line=number, **options)
            for line, best in zip(lines, found, strict=True):
                text = _json(number, line, best) if as_json else hypothesis_lines(number, best, nbest, scores)
                file.write(text.encode("utf-8"))
                noted.add(number, best[0].notes)
                filled, translated = filled or bool(line.strip()), translated or bool(best[0].tokens)
                number += 1
            file.flush()
            if refused is not None:
                raise refused
    if filled and not translated and not one_per_line and not noted.numbers:
        typer.echo("macaron: nothing was translated: no line has words (--one-per-line translates numbers)", err=True)
    for message in noted.messages():
        typer.echo(f"macaron: {message}", err=True)


def _check_corpus(corpus: Path | None, out: Path | None, alone: bool) -> None:
    if (corpus is None) != (out is None):
        raise UsageError("--corpus FILE and --out PREFIX belong together")
    if corpus is not None and not alone:
        raise UsageError("--corpus goes without --input, --output, --nbest, --scores, --json and --long-lines")
    if corpus is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes (torchrun) can share the work of --corpus only")


def _read_document(path: Path, alone: bool) -> str:
    from macaron.decode.documents import ENDINGS
    from macaron.limits import LARGEST_DOCUMENT, read_limited, why

    if not alone:
        raise UsageError("--document goes without --input, --corpus, --one-per-line, --nbest, --scores and --json")
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: a document is one of {', '.join(ENDINGS)}, by the end of its name")
    try:
        return read_limited(path, LARGEST_DOCUMENT, "utf-8")
    except ValueError as error:
        raise MacaronError(f"{path}: {why(error)}") from None


def _translate_document(
    translator: "Translator", path: Path, text: str, output_file: Path | None, options: dict[str, Any]
) -> None:
    from macaron.decode.degenerate import NotedLines
    from macaron.decode.documents import ENDINGS, translate_document
    from macaron.decode.stream import output

    mark = text[: text.startswith("\ufeff")]  # a byte order mark stays, but is not text
    translated, notes = translate_document(translator, text[len(mark) :], ENDINGS[path.suffix.lower()], **options)
    with output(output_file) as file:
        file.write((mark + translated).encode("utf-8"))
    noted = NotedLines()
    for number, each in enumerate(notes, start=1):
        noted.add(number, each)
    for message in noted.messages("sentence"):
        typer.echo(f"macaron: {message}", err=True)


def _make_corpus(
    load: "Callable[..., Translator]", device: str, text: Path, out: Path, options: dict[str, Any]
) -> None:
    """Make a corpus, alone or with the other processes of torchrun, and print what became of the lines."""
    from macaron.decode.corpus import RULES, translate_corpus
    from macaron.device import choose_device
    from macaron.processes import Progress
    from macaron.train.distributed import join
    from macaron.train.failures import loss_explained

    on_gpu = choose_device(device).type == "cuda"
    with loss_explained("give the same command again to go on"), join(on_gpu) as us:
        translator = load(device=f"cuda:{us.local_rank}" if on_gpu and us.world > 1 else device)
        counts = translate_corpus(
            translator, text, out, options, Progress(quiet=not us.first), us.rank, us.world, us.gather
        )
    if not us.first:
        return
    if counts is None:
        typer.echo(f"{out} is complete: nothing to do")
        return
    typer.echo(f"{counts['read']:,} lines")
    for rule, meaning in RULES.items():
        if counts[rule]:
            typer.echo(f"- {counts[rule]:,} {rule}: {meaning}")
    sides = (translator.tokenizer.source_lang, translator.tokenizer.target_lang)
    typer.echo(f"{counts['kept']:,} pairs in {' and '.join(f'{out}.{side}' for side in sides)}")


def sampling_of(sample: bool, given: dict[str, Any]) -> "Sampling | None":
    """The settings of sampling that options give."""
    from macaron.decode.settings import Sampling

    named = {name: value for name, value in given.items() if value is not None}
    if not sample and named:
        raise UsageError(f"--{next(iter(named)).replace('_', '-')} is for --sample")
    return Sampling(**named) if sample else None


def hypothesis_lines(number: int, best: "list[Hypothesis]", nbest: int, scores: bool) -> str:
    """The lines of an input line's hypotheses."""
    lines = []
    for each in best:
        columns = [str(number)] if nbest > 1 else []
        if scores:
            columns.append(f"{each.score:.6f}")
        # Output is one line per hypothesis; a byte-level model may generate line breaks.
        columns.append(one_line(each.text))
        lines.append("\t".join(columns) + "\n")
    return "".join(lines)


def _json(number: int, source: str, best: "list[Hypothesis]") -> str:
    record = {"line": number, "source": source, "translations": [asdict(each) for each in best]}
    return json.dumps(record, ensure_ascii=False) + "\n"
