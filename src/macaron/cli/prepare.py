"""``macaron prepare``: corpora in, a folder of token stores out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from macaron.errors import Interrupted, UsageError
from macaron.limits import LARGEST_VOCABULARY, MOST_PROCESSES

if TYPE_CHECKING:
    from macaron.data.prepared import PreparedData, PreparedText

_TEXT = (
    "Plain text for pre-training: one paragraph per line, a blank line between documents; plain, .gz or .xz; may be "
    "repeated."
)


def prepare(
    recipe: Annotated[
        Path | None,
        Argument(help="A recipe: a TOML file, or a name of `macaron recipe list`; or use the options below."),
    ] = None,
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
        int | None,
        Option(min=8, max=LARGEST_VOCABULARY, help="Subword vocabulary (default: by the size of the corpus)."),
    ] = None,
    tokenizer: Annotated[
        Path | None, Option(metavar="MODEL", help="Use the tokenizer of a model, a run or a prepared folder.")
    ] = None,
    extend_vocab: Annotated[
        int | None, Option(min=1, max=LARGEST_VOCABULARY, help="With --tokenizer: add this many subwords to it.")
    ] = None,
    pipeline: Annotated[
        Literal["raw", "moses"] | None,
        Option(help="raw: cased plain text (default); moses: tokenised and lower-cased."),
    ] = None,
    state: Annotated[
        Literal["raw", "moses"] | None,
        Option(help="What the files hold: plain text (raw, default), or tokenised already (moses)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. data.max_words=100; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, max=MOST_PROCESSES, help="Processes (default: one for every core).")
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Read all of --out, even if it has not changed since it was last verified.")
    ] = False,
) -> None:
    """Clean a parallel corpus, or split plain text into sentences; learn subwords; write memory-mapped token stores."""
    from macaron.origin import Origin
    from macaron.recipe import data_recipe, load_content
    from macaron.settings import override

    common: dict[str, object] = {"--vocab-size": vocab_size, "--pipeline": pipeline, "--state": state}
    common |= {"--tokenizer": tokenizer, "--extend-vocab": extend_vocab}
    pairs = {"--source-lang": source_lang, "--target-lang": target_lang, "--train": train}
    held = {"--valid": valid, "--test": test}
    assignments = settings or []
    if recipe is not None:
        extra = _given({**common, **pairs, **held, "--text": text})
        if text and recipe.suffix != ".toml":  # the shell expanded --text *.txt
            quoted = f"--text '*{recipe.suffix}'"
            raise UsageError(f"{recipe}: --text takes one file. Repeat it, or quote a pattern: {quoted}")
        if extra:
            raise UsageError(f"{', '.join(extra)}: with a recipe, change its settings with --set data.key=value")
        content, origin = load_content(recipe, assignments, out)
    else:
        data: dict[str, object] = {"vocab_size": vocab_size, "pipeline": pipeline, "out": out and str(out)}
        data |= {"tokenizer": tokenizer and str(tokenizer), "extend_vocab": extend_vocab}
        if text:
            if extra := _given({**pairs, **held}):
                raise UsageError(f"{', '.join(extra)}: for pairs to translate, not for --text")
            if out is None:
                raise UsageError("--text needs --out: the folder to write")
            data |= {"kind": "text"}
            corpora = {"train": text}
        else:
            if missing := [name for name, value in {**pairs, "--out": out}.items() if not value]:
                names = ", ".join(missing)
                raise UsageError(f"give a recipe, or these options: {names}; or --text (see macaron prepare --help)")
            data |= {"source_lang": source_lang, "target_lang": target_lang}
            corpora = {"train": train or [], "valid": valid or [], "test": test or []}
        options = {f"data.{key}": f"--{key.replace('_', '-')} {value}" for key, value in data.items() if value}
        for split, paths in corpora.items():
            data[split] = [{"path": path, "state": state or "raw"} for path in paths]
        content = override({"data": {key: value for key, value in data.items() if value is not None}}, assignments)
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


def _given(options: dict[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]


def _print_report(data: "PreparedData | PreparedText", tokenizer: Path | None) -> None:
    """Print what cleaning dropped by rule, the sizes of the splits and of the vocabulary, and where that was taken."""
    import sys

    from rich.console import Console
    from rich.table import Column, Table

    from macaron.data.prepare.cleaning import RULES, TEXT_RULES
    from macaron.data.prepared import PreparedText

    cleaning, splits = data.manifest["cleaning"], data.manifest["splits"]
    dropped = cleaning["dropped"]
    if isinstance(data, PreparedText):
        title, unit = "Text", ""
        rows = [
            ("paragraphs", cleaning["paragraphs"], "read"),
            *((f"- {rule}", dropped[rule], f"{what}: {meaning}") for rule, (what, meaning) in TEXT_RULES.items()),
            ("sentences", cleaning["sentences"], "kept"),
            ("words", cleaning["words"], "in them"),
            ("documents", cleaning["documents"], "with at least one sentence"),
        ]
        sizes = "{documents:,} documents, {sentences:,} sentences, {tokens:,} tokens"
    else:
        title, unit = "Training pairs", "pairs"
        rows = [
            ("read", cleaning["read"], ""),
            *((f"- {rule}", dropped[rule], meaning) for rule, meaning in RULES.items()),
            *([("- held out", cleaning["held_out"], "every Nth, to validate")] if cleaning["held_out"] else []),
            ("kept", cleaning["kept"], ""),
        ]
        source, target = data.languages
        sizes = f"{{pairs:,}} pairs, {{source_tokens:,}} {source} and {{target_tokens:,}} {target} tokens"
    columns = (Column(no_wrap=True), Column(unit, justify="right", no_wrap=True), Column(no_wrap=True))
    table = Table(*columns, title=title, title_justify="left")
    for name, count, meaning in rows:
        table.add_row(name, f"{count:,}", meaning)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
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
