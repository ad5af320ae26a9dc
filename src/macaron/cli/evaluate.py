"""``macaron evaluate``: scores with their definitions."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from macaron.cli.early import check_early, is_language_model
from macaron.cli.options import AsJson, BatchTokens, Beam, Device, Dtype, Int8, LengthPenalty, Verify
from macaron.errors import UsageError


def evaluate(
    model: Annotated[Path, Argument(help="A model folder, or the folder of a run.")],
    data: Annotated[Path | None, Option(help="A folder that macaron prepare wrote.")] = None,
    split: Annotated[str | None, Option(help="valid or test (default); documents have valid.")] = None,
    source: Annotated[Path | None, Option(help="Plain text to translate; of a language model, to predict.")] = None,
    reference: Annotated[Path | None, Option(help="Its translation.")] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    lower: Annotated[bool | None, Option("--lower/--cased", help="Case in tokenised BLEU (default: recipe's).")] = None,
    compound_split: Annotated[bool | None, Option(help="Split hyphens in tokenised BLEU (default: recipe's).")] = None,
    batch_tokens: BatchTokens = None,
    headings: Annotated[bool, Option("--headings", help="Language models: documents begin at ' = Title = '.")] = False,
    tag: Annotated[str | None, Option(help="Tag of the sources (default: that of the corpus).")] = None,
    output: Annotated[Path | None, Option(help="Write the translations here.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    int8: Int8 = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Translate a test set and score it: sacreBLEU, chrF, and the paper's tokenised BLEU.

    Of a model that lower-cases, sacreBLEU is computed without case, and named sacreBLEU (lc).

    Scores and translations of a run are kept in its folder, for macaron report and macaron compare. Of a language model
    it prints the perplexity on --data (by default its own held-out documents), or on the plain text of --source.
    """
    if data is None and source is None:
        check_early(models=[model])
    if is_language_model(model):
        others = (reference, beam, length_penalty, lower, compound_split, tag, output, int8 or None)
        if any(each is not None for each in others) or (data is not None and source is not None):
            raise UsageError("a language model takes --data or --source, --headings and the device alone")
        how = {"headings": headings, "batch_tokens": batch_tokens, "device": device, "dtype": dtype}
        return _print_perplexity(model, data, split or "valid", source, how, as_json)
    if headings:
        raise UsageError("--headings is for language models")
    split = split or "test"
    if (data is None) == (source is None) or (source is None) != (reference is None):
        raise UsageError("give either --data DIR, or --source FILE and --reference FILE")
    check_early(models=[model], kinds=["translation"], data=data, split=split, verify=verify, writes=[output])
    check_early(reads=[source, reference], device=device, length_penalty=length_penalty)
    from macaron.data.prepared import PreparedData
    from macaron.decode import Translator
    from macaron.decode.stream import output as output_file
    from macaron.evaluate.evaluation import evaluate_files, evaluate_split
    from macaron.evaluate.stored import Measurement, Search
    from macaron.models.load import find_folder, run_of
    from macaron.seal import fingerprint
    from macaron.text.pipeline import import_moses_in_background

    import_moses_in_background()  # after torch: two imports take turns, but reading and packing matrices go beside one
    folder = find_folder(model, "translation")
    translator = Translator(folder, device=device, dtype=dtype, int8=int8, tag=tag)
    run, digest = run_of(folder), fingerprint(folder)  # of what has been loaded: it was computed for that
    search = {"beam": beam, "length_penalty": length_penalty, "batch_tokens": batch_tokens}
    options: dict[str, Any] = {**search, "lower": lower, "compound_split": compound_split}
    if source is not None and reference is not None:
        what = f"{source}, {reference}"
        scored = evaluate_files(translator, source, reference, translator.tokenizer.target_lang or "en", **options)
    elif data is not None:
        what = f"{data} ({split})"
        scored = evaluate_split(translator, PreparedData.open(data), split, **options)  # type: ignore[arg-type]
    if as_json:
        typer.echo(
            json.dumps(
                {"model": str(model), "data": what, "precision": translator.precision, **scored.to_dict()}, indent=1
            )
        )
    else:
        typer.echo(f"{model} on {what}: {len(scored.translations):,} sentences")
        typer.echo("beam {beam}, length penalty {length_penalty}, ".format(**scored.search) + translator.precision)
        typer.echo(str(scored))
    # Files are written last, so that the scores are printed even if writing fails.
    if run is not None:
        searched = Search(beam, length_penalty, device, dtype, batch_tokens, int8)
        name = split if source is None else source.name
        kept = Measurement(run, name, digest, scored.text, searched, scored.definition).store(scored, what).kept
        if kept is not None:
            typer.echo(f"kept in {kept}, for macaron report and compare", err=True)
    if output is not None:
        with output_file(output) as file:
            file.write("".join(f"{line}\n" for line in scored.translations).encode())


def _print_perplexity(
    model: Path, data: Path | None, split: str, source: Path | None, options: dict[str, Any], as_json: bool
) -> None:
    if options["headings"] and source is None:
        raise UsageError("--headings is for --source FILE: prepared documents are divided already")
    if data is None and source is None:
        from macaron.recipe import load_recipe

        if not (model / "recipe.toml").is_file():
            raise UsageError("give --data DIR or --source FILE: a model folder does not name its data")
        data = load_recipe(model / "recipe.toml").data
    check_early(models=[model], kinds=["language"], data=data, split=split, reads=[source], device=options["device"])
    from macaron.evaluate.perplexity import DEFINITION, evaluate_language_model

    found = evaluate_language_model(model, data, split, source, **options)  # type: ignore[arg-type]
    what = f"{source}" if source is not None else f"{data} ({split})"
    if as_json:
        typer.echo(json.dumps({"model": str(model), "data": what, **found, "definition": DEFINITION}, indent=1))
        return
    counts = ", ".join(f"{found[name]:,} {name}" for name in ("documents", "words", "tokens"))
    typer.echo(f"{model} on {what}: {counts}")
    typer.echo(f"perplexity per token  {found['perplexity_per_token']:.3f}")
    typer.echo(f"perplexity per word   {found['perplexity_per_word']:.3f}")
    typer.echo(f"({DEFINITION})")
