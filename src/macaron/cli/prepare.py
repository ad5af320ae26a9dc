"""``macaron prepare``: corpora in, a folder of token stores out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from macaron.errors import UsageError

if TYPE_CHECKING:
    from macaron.data.prepared import PreparedData

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
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write.")] = None,
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", min=8, help="Joint subword vocabulary (default: 10,000).")
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
    """Clean a parallel corpus, learn a joint subword vocabulary and write memory-mapped token stores."""
    from macaron.data.recipe import data_recipe
    from macaron.settings import override, read_toml

    given = {
        "--source-lang": source_lang,
        "--target-lang": target_lang,
        "--train": train,
        "--valid": valid,
        "--test": test,
        "--vocab-size": vocab_size,
        "--pipeline": pipeline,
        "--state": state,
    }
    data: dict[str, object] = {}
    if recipe is not None:
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise UsageError(f"{', '.join(extra)}: with a recipe, change its settings with --set data.key=value")
        content = read_toml(recipe)
    else:
        missing = [name for name in ("--source-lang", "--target-lang", "--train") if not given[name]]
        if missing or out is None:
            names = ", ".join([*missing, *(["--out"] if out is None else [])])
            raise UsageError(f"give a recipe, or these options: {names} (see macaron prepare --help)")
        corpora = {"train": train, "valid": valid, "test": test}
        data |= {"source_lang": source_lang, "target_lang": target_lang, "vocab_size": vocab_size, "pipeline": pipeline}
        data |= {
            name: [{"path": prefix, "state": state or "raw"} for prefix in prefixes]
            for name, prefixes in corpora.items()
            if prefixes
        }
        content = {"data": {key: value for key, value in data.items() if value is not None}}
    if out is not None:
        # A quoted TOML string would need escapes: the value is put in place as it is.
        content.setdefault("data", {})["out"] = str(out)
    chosen = data_recipe(override(content, settings or []), str(recipe or ""))

    # Only now: a mistake in the call is answered at once.
    from macaron.data.prepare import prepare as run
    from macaron.data.progress import Progress

    try:
        outcome = run(chosen, workers=workers, progress=Progress())
    except KeyboardInterrupt:
        typer.echo(f"macaron: stopped by Ctrl-C; {chosen.out} is as it was", err=True)
        raise typer.Exit(130) from None
    if outcome.reason is None:
        typer.echo(f"{chosen.out} is up to date: nothing to do")
        return
    _print(outcome.data)


def _print(data: "PreparedData") -> None:
    """Print what was dropped, and what there is now."""
    import sys

    from rich.console import Console
    from rich.table import Table

    from macaron.data.cleaning import RULES

    manifest = data.manifest
    cleaning = manifest["cleaning"]
    table = Table(title="Training pairs", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_row("read", f"{cleaning['read']:,}")
    for rule, meaning in RULES.items():
        table.add_row(f"- {rule}", f"{cleaning['dropped'][rule]:,}", meaning)
    if cleaning["held_out"]:
        table.add_row("- held out", f"{cleaning['held_out']:,}", "every so manieth, to validate")
    table.add_row("kept", f"{cleaning['kept']:,}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for split, sizes in manifest["splits"].items():
        typer.echo(
            f"{split}: {sizes['pairs']:,} pairs, {sizes['source_tokens']:,} {data.source_lang} and "
            f"{sizes['target_tokens']:,} {data.target_lang} tokens"
        )
    typer.echo(f"vocabulary: {data.vocab_size:,} subwords ({data.pipeline})")
    typer.echo(f"prepared in {data.folder}")
