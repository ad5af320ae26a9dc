"""``macaron prepare``: corpora in, a folder of token stores out."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.options import Settings, Verify, print_table
from macaron.errors import Interrupted, UsageError
from macaron.limits import LARGEST_VOCABULARY, MOST_PROCESSES

if TYPE_CHECKING:
    from macaron.data.prepared import PreparedData, PreparedText

_TEXT = "Plain text: a paragraph per line, a blank line between documents; also .gz and .xz; may be repeated."


def prepare(
    recipe: Annotated[Path | None, Argument(help="A TOML file or name of `macaron recipe list`; or options.")] = None,
    *,
    source_lang: Annotated[str | None, Option(help="Language to translate from.")] = None,
    target_lang: Annotated[str | None, Option(help="Language to translate into.")] = None,
    train: Annotated[
        list[str] | None, Option(metavar="PREFIX", help="PREFIX.de and PREFIX.en, plain, .gz or .xz; may be repeated.")
    ] = None,
    valid: Annotated[list[str] | None, Option(metavar="PREFIX", help="The same, to validate.")] = None,
    test: Annotated[list[str] | None, Option(metavar="PREFIX", help="The same, to test.")] = None,
    text: Annotated[list[str] | None, Option(metavar="FILE", help=_TEXT)] = None,
    out: Annotated[Path | None, Option(help="The folder to write.")] = None,
    vocab_size: Annotated[
        int | None, Option(min=8, max=LARGEST_VOCABULARY, help="Subwords (default: by the size of the corpus).")
    ] = None,
    tokenizer: Annotated[
        Path | None, Option(metavar="MODEL", help="Take that of a model, run or prepared folder.")
    ] = None,
    extend_vocab: Annotated[
        int | None, Option(min=1, max=LARGEST_VOCABULARY, help="With --tokenizer: subwords to add to it.")
    ] = None,
    pipeline: Annotated[
        Literal["raw", "moses"] | None, Option(help="raw: cased (default); moses: lower-cased.")
    ] = None,
    state: Annotated[Literal["raw", "moses"] | None, Option(help="Of the files; moses: tokenised already.")] = None,
    settings: Settings = None,
    workers: Annotated[int | None, Option(min=1, max=MOST_PROCESSES, help="Processes (default: one per core).")] = None,
    verify: Verify = False,
) -> None:
    """Clean a parallel corpus, or split plain text into sentences; learn subwords; write memory-mapped token stores."""
    from macaron.recipe import data_recipe, load_content
    from macaron.settings import Origin, override, to_data

    shared = {"vocab_size": vocab_size, "pipeline": pipeline, "tokenizer": tokenizer, "extend_vocab": extend_vocab}
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    corpora = {"train": train, "valid": valid, "test": test}
    pairs = {**languages, **corpora}
    assignments = settings or []
    if recipe is not None:
        if text and recipe.suffix != ".toml":  # the shell expanded --text *.txt
            quoted = f"--text '*{recipe.suffix}'"
            raise UsageError(f"{recipe}: --text takes one file. Repeat it, or quote a pattern: {quoted}")
        if extra := _options({**shared, "state": state, **pairs, "text": text}, given=True):
            raise UsageError(f"{extra}: with a recipe, change its settings with --set data.key=value")
        content, origin = load_content(recipe, assignments, out)
    else:
        if text and (extra := _options(pairs, given=True)):
            raise UsageError(f"{extra}: for pairs to translate, not for --text")
        if text and out is None:
            raise UsageError("--text needs --out: the folder to write")
        if not text and (missing := _options({**languages, "train": train, "out": out}, given=False)):
            raise UsageError(f"give a recipe, or these options: {missing}; or --text (see macaron prepare --help)")
        data: dict[str, object] = {"out": out, **shared, **languages}
        options = {f"data.{key}": f"--{key.replace('_', '-')} {value}" for key, value in data.items() if value}
        data["kind"] = "text" if text else "pairs"
        for split, paths in {**corpora, "train": train or text}.items():
            data[split] = [{"path": path, "state": state or "raw"} for path in paths] if paths else None
        content = override({"data": to_data(data)}, assignments)
        origin = Origin(assignments=tuple(assignments), options=options)
    chosen = data_recipe(content, origin)

    # Late: a mistake in the call is reported at once.
    from macaron.data.prepare import prepare as run
    from macaron.processes import Progress

    try:
        with origin.located():
            outcome = run(chosen, workers=workers, progress=Progress(), verify=verify)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"{str(stop) or 'stopped by Ctrl-C'}; {chosen.out} is unchanged") from None
    if outcome.reason is None:
        typer.echo(f"{chosen.out} is up to date: nothing to do")
        return
    _print_report(outcome.data, chosen.tokenizer)


def _options(values: Mapping[str, object], given: bool) -> str:
    return ", ".join(f"--{key.replace('_', '-')}" for key, value in values.items() if bool(value) == given)


def _print_report(data: "PreparedData | PreparedText", tokenizer: Path | None) -> None:
    from macaron.data.prepare.cleaning import RULES
    from macaron.data.prepared import PreparedText

    cleaning, splits = data.manifest["cleaning"], data.manifest["splits"]
    dropped = [(f"- {rule}", cleaning["dropped"][rule], meaning) for rule, meaning in RULES[data.kind].items()]
    if isinstance(data, PreparedText):
        title, unit, first = "Text", "", ("paragraphs", cleaning["paragraphs"], "read")
        kept = {"sentences": "kept", "words": "in them", "documents": "with at least one sentence"}
        sizes = "{documents:,} documents, {sentences:,} sentences, {tokens:,} tokens"
    else:
        title, unit, first, kept = "Training pairs", "pairs", ("read", cleaning["read"], ""), {"kept": ""}
        if cleaning["held_out"]:
            dropped.append(("- held out", cleaning["held_out"], "every Nth, to validate"))
        source, target = data.languages
        sizes = f"{{pairs:,}} pairs, {{source_tokens:,}} {source} and {{target_tokens:,}} {target} tokens"
    rows = [first, *dropped, *((name, cleaning[name], meaning) for name, meaning in kept.items())]
    print_table((title, unit, " "), [(name, f"{count:,}", meaning) for name, count, meaning in rows], (title, " "))
    for split, counts in splits.items():
        typer.echo(f"{split}: {sizes.format(**counts)}")
        corpora = [] if isinstance(data, PreparedText) else data.corpora(split)
        if len(corpora) > 1:
            typer.echo("\n".join(f"  {corpus}" for corpus in corpora))
    subwords = data.manifest["subwords"]
    learned, given = subwords.get("learned_from_sentences"), subwords.get("of_sentences")
    if learned is not None and learned < given:
        typer.echo(f"subwords were learned from a sample: {learned:,} of {given:,} sentences")
    taken = "" if tokenizer is None else f", from {tokenizer}"
    typer.echo(f"vocabulary: {data.vocab_size:,} subwords ({data.pipeline}{taken})")
    typer.echo(f"prepared in {data.folder}")
