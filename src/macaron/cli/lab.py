"""``macaron demo | doctor | report | particles | compare | twins``: the verbs of the lab."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from macaron.cli.early import check_early, check_recipe
from macaron.cli.options import BatchTokens, Beam, Device, Dtype, LengthPenalty, Settings, print_table
from macaron.errors import UsageError
from macaron.limits import MOST_PROCESSES, MOST_SEEDS

if TYPE_CHECKING:
    from macaron.lab.compare.comparison import Result


def demo(
    recipe: Annotated[Path | None, Option(help="A recipe like `macaron recipe show demo`, the default.")] = None,
    runs: Annotated[Path, Option(help="The folder for its runs.")] = Path("runs"),
    minutes: Annotated[float, Option(min=1, help="Time for everything; a slow machine trains fewer updates.")] = 6.0,
) -> None:
    """Train a Transformer and a Macaron of equal size on a generated corpus, translate, compare: a few minutes."""
    from macaron.recipe import load_recipe
    from macaron.shipped import shipped

    load_recipe(recipe or shipped("demo"))  # before torch is imported: a mistake is reported at once

    from macaron.lab.demo import run_demo

    run_demo(recipe or shipped("demo"), runs, typer.echo, minutes)


def doctor() -> None:
    """Check this machine: versions, GPU, threads, a tiny training and translation. Takes a few seconds."""
    from macaron.lab.doctor import examine

    failed = False
    for found in examine():
        typer.echo(f"{found.state:5} {found.text}" + (f"\n      -> {found.remedy}" if found.remedy else ""))
        failed |= found.state == "fail"
    if failed:
        raise typer.Exit(1)


def report(
    run: Annotated[Path, Argument(help="The folder of a run.")],
    out: Annotated[Path | None, Option(help="The page to write: FILE.html (default: RUN/report.html).")] = None,
    data: Annotated[Path | None, Option(help="Prepared data for the samples (default: as the recipe says).")] = None,
    samples: Annotated[bool, Option(help="Let the model translate a few sentences.")] = True,
) -> None:
    """Write a page about a run: recipe, curves, throughput, scores, samples, environment. One file, opens offline."""
    check_early(runs=[run], data=data)
    from macaron.lab.report import write_report

    typer.echo(f"wrote {write_report(run, out, samples=samples, data=data)}", err=True)


def particles(
    model: Annotated[Path, Argument(help="A model folder or a run's folder.")],
    sentence: Annotated[str, Argument(help="The sentence.")],
    out: Annotated[Path, Option("--out", "-o", help="FILE.html (a page), .json (its data), .png or .gif.")],
    model2: Annotated[Path | None, Option(help="A second model, shown beside the first.")] = None,
    target: Annotated[str | None, Option(help="The decoder's input; default: the model's own translation.")] = None,
    part: Annotated[Literal["encoder", "decoder", "both"], Option(help="Part of a translation model.")] = "both",
    view: Annotated[
        Literal["raw", "normalised"] | None, Option(help="For .png and .gif: states as they are, or after the norm.")
    ] = None,
) -> None:
    """Show the words of a sentence as particles: how every sub-step of every layer moves them.

    For translation models and encoders. Two models are shown side by side, aligned where their tokens are the same;
    give --target to have the same words in both decoders.
    """
    from macaron.lab.particles.particles_page import check_out, write

    check_out(out, view)
    if not sentence.strip():
        raise UsageError("the sentence is empty: give some words in quotes")
    if target is not None and not target.strip():
        raise UsageError("--target is empty: give a translation, or leave it out")
    if target is not None and part == "encoder":
        raise UsageError("--target is for the decoder: leave it out, or --part encoder")
    parts: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder") if part == "both" else (part,)

    check_early(models=[model, model2])
    from macaron.lab.particles.build_data import build_data

    models = [model] if model2 is None else [model, model2]
    write(out, build_data(models, sentence, target=target, parts=parts), view)
    typer.echo(f"wrote {out}", err=True)


def compare(
    runs: Annotated[list[Path], Argument(help="Folders of runs; the others are compared with the first.")],
    out: Annotated[Path, Option(help="The page (HTML).")],
    data: Annotated[Path | None, Option(help="A folder that macaron prepare wrote (default: the first run's).")] = None,
    split: Annotated[str, Option(help="valid or test.")] = "test",
    json_file: Annotated[Path | None, Option("--json", help="Write all numbers here.")] = None,
    vary: Annotated[
        list[str] | None, Option(help="A setting that differs on purpose, such as train.learning_rate (repeatable).")
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Compare runs: fairness, scores, tests of the differences. Runs that differ only in the seed form one kind."""
    from macaron.lab.page import check_page_path

    check_early(runs=runs, data=data, split=split, pages=[out, json_file], device=device, length_penalty=length_penalty)
    check_page_path(out)
    from macaron.evaluate.stored import Search
    from macaron.lab.compare.comparison_page import write_comparison

    search = Search(beam, length_penalty, device, dtype, batch_tokens)
    say = partial(typer.echo, err=True)
    found = write_comparison(runs, data, split, out, json_file=json_file, search=search, vary=vary or [], say=say)
    _print(found, f"Page: {out}" + (f"    Numbers: {json_file}" if json_file else ""))


def twins(
    recipe: Annotated[Path, Argument(help="A recipe: a TOML file, or a name of `macaron recipe list`.")],
    out: Annotated[Path, Option(help="The folder for the runs and their page.")],
    schemes: Annotated[
        str | None,
        Option(
            help="Names of `macaron ode list` or control (lie-fg with half an FFN at both ends), separated by commas "
            "(default: lie-fg,strang-gfg; with --vary the recipe's own). In the decoder F becomes F H; ENCODER/DECODER "
            "gives it a scheme of its own."
        ),
    ] = None,
    vary: Annotated[list[str] | None, Option(metavar="KEY=VALUE,VALUE", help="Vary a setting (repeatable).")] = None,
    seeds: Annotated[int, Option(min=1, max=MOST_SEEDS, help="Train with seeds 1 to N; a test needs 3.")] = 1,
    budget: Annotated[int | None, Option(min=1, help="Updates of every run, instead of the recipe's limits.")] = None,
    jobs: Annotated[int, Option(min=1, max=MOST_PROCESSES, help="The number of runs to train at a time.")] = 1,
    settings: Settings = None,
    allow_unequal: Annotated[
        bool, Option("--allow-unequal", help="Also train networks whose sizes differ by more than 0.5 %.")
    ] = False,
) -> None:
    """Train twins: equal in all but the scheme, or a setting. Stop with Ctrl-C; the same command continues."""
    from macaron.ode import scheme
    from macaron.recipe import Recipe, load_recipe

    # The recipe may have no limit. Before torch is imported: a mistake is reported at once.
    limit = {} if budget is None else {f"--budget {budget}": f"train.max_updates={budget}"}
    variants: list[tuple[dict[str, str], Recipe]] = []
    for values in product(*map(_varied, vary or [])):
        given = limit | {f"--vary {key}={text}": f"{key}={text}" for key, text in values}
        variants.append((dict(values), load_recipe(recipe, settings or [], options=given)))
    chosen = variants[0][1]
    usual = "" if vary else "lie-fg,strang-gfg"
    names = [name.strip() for name in (usual if schemes is None else schemes).split(",") if name.strip()]
    if len(names) < 2 and not vary:
        raise UsageError("--schemes needs at least two, separated by commas: lie-fg,strang-gfg")
    check_recipe(chosen, out, new=False)
    for part in (part for name in names for part in name.split("/") if part != "control"):
        scheme(part)
    from macaron.lab.twins import NUMBERS, PAGE, make_twins

    found = make_twins(
        chosen, names, seeds, out, variants=variants, jobs=jobs, budget=budget, allow_unequal=allow_unequal
    ).run()
    if found is not None:
        _print(found, f"Page: {out / PAGE}    Numbers: {out / NUMBERS}")


def _varied(setting: str) -> list[tuple[str, str]]:
    """The key and a value, for each value of KEY=VALUE,VALUE; values are written as for --set."""
    key, _, text = (part.strip() for part in setting.partition("="))
    values: list[str] = []
    for part in text.split(","):
        opened = values and sum(map(values[-1].count, "[{")) > sum(map(values[-1].count, "]}"))
        values.append(f"{values.pop()},{part}" if opened else part.strip())
    if len(values) < 2 or not all(values):
        raise UsageError(f"--vary {setting}: give a setting and at least two values: train.learning_rate=1e-3,3e-3")
    if key.startswith("data.") or key == "train.seed":
        raise UsageError(f"--vary {key}: twins are trained on the same data, with the same seeds (--seeds N)")
    return [(key, value) for value in values]


def _print(found: "Result", files: str) -> None:
    columns, *rows = found.table()
    typer.echo(found.sentence)
    print_table(columns, rows, left=columns[:1])
    typer.echo(files)
