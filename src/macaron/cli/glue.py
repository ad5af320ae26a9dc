"""``macaron glue``: fine-tune on GLUE's tasks, choose on dev, and make the submission."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from typer import Argument, Option

from macaron.cli.early import check_early
from macaron.cli.options import Precision
from macaron.errors import MacaronError, UsageError
from macaron.limits import LONGEST_TEXT, MOST_PROCESSES, MOST_SEEDS

Number = TypeVar("Number", int, float)


def glue(
    model: Annotated[Path | None, Argument(help="A pre-trained model folder, or a run's.")] = None,
    data: Annotated[Path | None, Option(help="GLUE's folder: CoLA, SST-2, ... below it.")] = None,
    tasks: Annotated[str, Option(help="Any of these and wnli, with commas.")] = "cola,sst2,mrpc,stsb,qqp,mnli,qnli,rte",
    out: Annotated[Path | None, Option(help="The run's folder.")] = None,
    seeds: Annotated[int, Option(min=1, max=MOST_SEEDS, help="Seeds 1 to N, for each setting.")] = 3,
    grid: Annotated[
        Literal["paper", "fixed"],
        Option(help="paper: batch 16,32, rate 5e-5,3e-5, epochs 3,4,5; fixed: 32, 5e-5, 3. Lists replace parts."),
    ] = "paper",
    batch_size: Annotated[str | None, Option(help="One or a list: 16,32.")] = None,
    rate: Annotated[str | None, Option("--learning-rate", help="One or a list: 5e-5,3e-5.")] = None,
    epochs: Annotated[str | None, Option(help="One or a list: 3,4,5.")] = None,
    weight_decay: Annotated[str, Option(help="One or a list.")] = "0",
    clip_norm: Annotated[float, Option(min=0, help="Clip the gradient's norm (0: off).")] = 0.0,
    dropout: Annotated[float | None, Option(min=0, max=1, help="Default: the model's own.")] = None,
    max_length: Annotated[int, Option(min=8, max=LONGEST_TEXT, help="Tokens; longer examples are cut.")] = 256,
    symmetric: Annotated[bool, Option("--symmetric", help="Swap the texts of MRPC, STS-B, QQP at random.")] = False,
    two_logits: Annotated[bool, Option("--two-logits", help="CoLA, MRPC, QQP by two logits, not by one.")] = False,
    resume: Annotated[bool, Option("--resume", help="Continue; finished runs are not repeated.")] = False,
    device: Annotated[str, Option(help="auto (all GPUs), cpu, cuda, cuda:1.")] = "auto",
    workers: Annotated[int | None, Option(min=1, max=MOST_PROCESSES, help="Processes (default: one per GPU).")] = None,
    precision: Precision = "auto",
    check: Annotated[Path | None, Option(help="Only check a submission zip.")] = None,
) -> None:
    """Fine-tune on GLUE: every setting and seed, selection on dev, medians, one table, the submission.

    RUN gets results.jsonl (a line for each finished run), table.md, results.json, the best model of each task in
    models/, predictions/, submission.zip. Stop it with Ctrl-C; continue with --resume.
    """
    if check is not None:
        from macaron.data.glue import check_submission

        problems = check_submission(check)
        if problems:
            raise MacaronError(f"{check}: GLUE's server would refuse it:\n  " + "\n  ".join(problems))
        typer.echo(f"{check}: complete and well formed")
        return
    if model is None or data is None or out is None:
        raise UsageError("give a model, --data DIR and --out RUN; or --check ZIP alone")
    lists: dict[str, tuple[int, ...] | tuple[float, ...]] = {
        "batch_size": _numbers("--batch-size", batch_size, int),
        "learning_rate": _numbers("--learning-rate", rate, float),
        "epochs": _numbers("--epochs", epochs, int),
        "weight_decay": _numbers("--weight-decay", weight_decay, float),
    }

    from macaron.data.glue import task_named
    from macaron.files import check_unused, writing

    chosen = list({task.name: task for task in map(task_named, tasks.split(","))}.values())
    check_early(models=[model], kinds=["encoder", "language"], device=device)
    if not data.is_dir():
        raise MacaronError(f"{data}: no such folder. Give GLUE's folder: CoLA, SST-2, ... below it.")
    if not resume:
        check_unused(out)
    from macaron.tasks.glue.glue_run import run_glue
    from macaron.tasks.glue.jobs import FIXED, PAPER, make_plan

    space = {**(PAPER if grid == "paper" else FIXED), **{name: value for name, value in lists.items() if value}}
    plan = make_plan(chosen, seeds, space, symmetric, not two_logits, clip_norm)
    tuner = {"max_length": max_length, "dropout": dropout, "precision": precision}
    with writing(out):
        typer.echo(run_glue(model, data, out, plan, tuner, device, workers))


def _numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """The numbers of ``16,32``; none where nothing is given."""
    try:
        return tuple(dict.fromkeys(kind(part.strip()) for part in text.split(","))) if text is not None else ()
    except ValueError:
        raise UsageError(f"{option} takes a number, or several separated by commas, not {text!r}") from None
