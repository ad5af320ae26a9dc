"""``macaron prepare``: corpora in, a folder of token stores out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from macaron.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from macaron.data.prepared import PreparedData, PreparedText

Prefixes = list[str]


def prepare(
    recipe: Annotated[Path | None, typer.Argument(help="A recipe (TOML); or use the options below.")] = None,
    *,
    source_lang: Annotated[str | None, typer.Option("--source-lang", help="Language to translate from.")] = None,
    target_lang: Annotated[str | None, typer.Option("--target-lang", help="Language to translate into.")] = None,
    train: Annotated[
        Prefixes | None,
        typer.Option("--train", metavar="PREFIX", help="PREFIX.de and PREFIX.en, plain, .gz or .xz; may be repeated."),
    ] = None,
    valid: Annotated[Prefixes | None, typer.Option("--valid", metavar="PREFIX", help="The same, to validate.")] = None,
    test: Annotated[Prefixes | None, typer.Option("--test", metavar="PREFIX", help="The same, to test.")] = None,
    text: Annotated[
        Prefixes | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Plain text for pre-training: one paragraph per line, a blank line between documents; plain, .gz or "
            ".xz; may be repeated.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write.")] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option("--vocab-size", min=8, help="Subword vocabulary (default: 10,000 joint; --text: 32,000)."),
    ] = None,
    pipeline: Annotated[
        Literal["raw", "moses"] | None,
        typer.Option("--pipeline", help="raw: cased plain text (default); moses: tokenised and lower-cased."),
    ] = None,
    state: Annotated[
        Literal["raw", "moses"] | None,
        typer.Option("--state", help="What the files hold: plain text (raw, default), or tokenised already (moses)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. data.max_words=100; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes (default: one for every core).")
    ] = None,
) -> None:
    """Clean a parallel corpus, or split plain text into sentences; learn subwords; write memory-mapped token stores."""
    from macaron.recipe import data_recipe, load_data_recipe
    from macaron.settings import Origin, override

    common = {"--vocab-size": vocab_size, "--pipeline": pipeline, "--state": state}
    pairs = {"--source-lang": source_lang, "--target-lang": target_lang, "--train": train}
    held = {"--valid": valid, "--test": test}
    assignments = settings or []
    if recipe is not None:
        _check_alone(recipe, _given({**common, **pairs, **held, "--text": text}))
        chosen = load_data_recipe(recipe, assignments, out)
    else:
        data: dict[str, object] = {"vocab_size": vocab_size, "pipeline": pipeline, "out": out and str(out)}
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
        for split, paths in corpora.items():
            data[split] = [{"path": path, "state": state or "raw"} for path in paths]
        content = {"data": {key: value for key, value in data.items() if value is not None}}
        chosen = data_recipe(override(content, assignments), Origin(assignments=tuple(assignments)))

    # Late: a mistake in the call is reported at once.
    from macaron.data.prepare import prepare as run
    from macaron.data.prepared import PreparedText
    from macaron.data.progress import Progress

    try:
        outcome = run(chosen, workers=workers, progress=Progress())
    except KeyboardInterrupt:
        typer.echo(f"macaron: stopped by Ctrl-C; {chosen.out} is unchanged", err=True)
        raise typer.Exit(130) from None
    if outcome.reason is None:
        typer.echo(f"{chosen.out} is up to date: nothing to do")
        return
    prepared = outcome.data
    if isinstance(prepared, PreparedText):
        _print_text(prepared)
    else:
        _print_pairs(prepared)
    typer.echo(f"vocabulary: {prepared.vocab_size:,} subwords ({prepared.pipeline})")
    typer.echo(f"prepared in {prepared.folder}")


def _given(options: dict[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]


def _check_alone(recipe: Path, extra: list[str]) -> None:
    """Refuse options beside a recipe."""
    if "--text" in extra and recipe.suffix != ".toml":  # the shell expanded --text *.txt
        raise UsageError(f"{recipe}: --text takes one file. Repeat it, or quote a pattern: --text '*{recipe.suffix}'")
    if extra:
        raise UsageError(f"{', '.join(extra)}: with a recipe, change its settings with --set data.key=value")


def _print_pairs(data: "PreparedData") -> None:
    """Print the number of dropped pairs by rule, and the sizes of the splits."""
    from macaron.data.prepare.cleaning import RULES

    cleaning = data.manifest["cleaning"]
    table = _table("Training pairs", "pairs")
    table.add_row("read", f"{cleaning['read']:,}")
    for rule, meaning in RULES.items():
        table.add_row(f"- {rule}", f"{cleaning['dropped'][rule]:,}", meaning)
    if cleaning["held_out"]:
        table.add_row("- held out", f"{cleaning['held_out']:,}", "every Nth, to validate")
    table.add_row("kept", f"{cleaning['kept']:,}")
    _show(table)
    for split, sizes in data.manifest["splits"].items():
        typer.echo(
            f"{split}: {sizes['pairs']:,} pairs, {sizes['source_tokens']:,} {data.source_lang} and "
            f"{sizes['target_tokens']:,} {data.target_lang} tokens"
        )


def _print_text(data: "PreparedText") -> None:
    """The same for documents."""
    from macaron.data.prepare.cleaning import TEXT_RULES

    cleaning = data.manifest["cleaning"]
    table = _table("Text", "")
    table.add_row("paragraphs", f"{cleaning['paragraphs']:,}", "read")
    for rule, (unit, meaning) in TEXT_RULES.items():
        table.add_row(f"- {rule}", f"{cleaning['dropped'][rule]:,}", f"{unit}: {meaning}")
    table.add_row("sentences", f"{cleaning['sentences']:,}", "kept")
    table.add_row("words", f"{cleaning['words']:,}", "in them")
    table.add_row("documents", f"{cleaning['documents']:,}", "with at least one sentence")
    _show(table)
    for split, sizes in data.manifest["splits"].items():
        typer.echo(
            f"{split}: {sizes['documents']:,} documents, {sizes['sentences']:,} sentences, {sizes['tokens']:,} tokens"
        )
    subwords = data.manifest["subwords"]
    if subwords["learned_from_sentences"] < subwords["of_sentences"]:
        typer.echo(
            f"subwords were learned from a sample: {subwords['learned_from_sentences']:,} of "
            f"{subwords['of_sentences']:,} sentences"
        )


def _table(title: str, unit: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _show(table: "Table") -> None:
    import sys

    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 120).print(table)
