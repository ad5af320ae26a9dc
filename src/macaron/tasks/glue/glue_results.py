"""The results of a grid of runs: the list of finished runs, medians and spread, the table of the paper."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median, stdev
from typing import Annotated, Any, NotRequired, TypedDict

from macaron.data.glue import METRICS, TASKS, USUAL
from macaron.errors import MacaronError
from macaron.evaluate.glue_metrics import Average, glue_average, task_score
from macaron.files import read_lines, remove, write_text
from macaron.json_files import Record, parse_json
from macaron.limits import Between
from macaron.models.load import keep_card
from macaron.settings import OTHERS

#: Per cent; a correlation may be rounded upwards.
_Score = Annotated[float, Between(-100.1, 100.1)]
_MEASURES: dict[str, Callable[[list[float]], float | None]] = {
    "median": median,
    "sd": lambda values: stdev(values) if len(values) > 1 else None,
    "min": min,
    "max": max,
}


class _Record(TypedDict):  # as far as it is read again
    run: str
    task: str
    setting: str
    seed: int
    score: _Score
    scores: dict[str, dict[str, _Score]]
    diverged: bool
    data: NotRequired[dict[str, str]]
    constant: NotRequired[dict[str, dict[str, _Score]] | None]


class GlueResults:
    """The finished runs of a folder, one line of ``results.jsonl`` each."""

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / "results.jsonl"
        self.records: dict[str, Record] = {}
        if self.path.is_file():
            for number, line in enumerate(read_lines(self.path), start=1):
                place, remedy = f"{self.path}, line {number}", "Remove the line: the run is done again."
                record = parse_json(line, place, Annotated[_Record, OTHERS], remedy, finite=False)
                task = TASKS.get(record["task"])
                scored = {name: set(metrics) for name, metrics in record["scores"].items()}
                if task is None or scored != {name: set(task.metrics) for name in task.dev}:
                    raise MacaronError(f"{place}: not the record of a run. {remedy}")
                self.records[record["run"]] = record

    def best(self, task: str) -> Record | None:
        """The best run of a task on the development set; of equals the first by name."""
        records = (record for record in self.records.values() if record["task"] == task)
        return min(records, key=lambda each: (each["diverged"], -each["score"], each["run"]), default=None)

    def add(self, record: Record) -> None:
        """Add a finished run; its model, if it has left one in ``candidates``, is kept if it is the best of its task.

        The model first: if the process is killed in between, the run is only done again.
        """
        before = self.best(record["task"])
        candidate = self.run / "candidates" / record["run"]
        self.records[record["run"]] = record
        if candidate.is_dir():
            if self.best(record["task"]) is record:
                model = self.run / "models" / record["task"]
                model.parent.mkdir(exist_ok=True)
                keep_card(model, candidate)
                remove(model)
                candidate.rename(model)
            else:
                remove(candidate)
        elif before is None:
            raise MacaronError(f"{candidate}: the first model of {record['task']} has disappeared")
        write_text(self.path, "".join(json.dumps(each) + "\n" for each in self.records.values()))

    def summary(self) -> dict[str, Any]:
        """Per task the best setting by the median over its seeds, and the best run."""
        return {name: self._summarise(name, best) for name in TASKS if (best := self.best(name)) is not None}

    def _summarise(self, task: str, best: Record) -> dict[str, Any]:
        records = [record for record in self.records.values() if record["task"] == task]
        settings: dict[str, list[Record]] = {}
        for record in records:
            settings.setdefault(record["setting"], []).append(record)
        # Compare only settings with the most seeds.
        most = max(map(len, settings.values()))
        full = {name: those for name, those in settings.items() if len(those) == most}
        chosen = min(full, key=lambda name: (-median(each["score"] for each in full[name]), name))
        seeds = full[chosen]
        spreads = {
            what: {
                name: {metric: measure([each["scores"][name][metric] for each in seeds]) for metric in metrics}
                for name, metrics in best["scores"].items()
            }
            for what, measure in _MEASURES.items()
        }
        return {
            "setting": chosen,
            "seeds": sorted(each["seed"] for each in seeds),
            "settings_tried": len(settings),
            "runs": len(records),
            "diverged": sum(bool(each["diverged"]) for each in records),
            **spreads,
            "score": {what: measure([each["score"] for each in seeds]) for what, measure in _MEASURES.items()},
            "constant": best.get("constant"),
            "best_run": {"run": best["run"], "score": best["score"], "scores": best["scores"]},
        }


def averages(summary: dict[str, Any]) -> dict[str, Average]:
    """The GLUE average of the medians, and of the best runs."""
    return {
        "median": glue_average({name: task_score(each["median"]) for name, each in summary.items()}),
        "best_run": glue_average({name: each["best_run"]["score"] for name, each in summary.items()}),
    }


def table(summary: dict[str, Any], title: str) -> str:
    """The table of the paper, in Markdown, on the development sets."""
    names = [*USUAL, *(["wnli"] if "wnli" in summary else [])]
    average = averages(summary)
    seeds = sorted({len(each["seeds"]) for each in summary.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    rows = (f"median of {count} seed(s)", "standard deviation", "best run", "majority baseline")
    columns: list[tuple[str, ...]] = [(f"{title}, dev", "---", *rows)]
    for task in (TASKS[name] for name in names):
        parts = task.dev if len(task.dev) > 1 else (METRICS[metric] for metric in task.metrics)
        each = summary.get(task.name, {"best_run": {}})
        found = (each.get("median"), each.get("sd"), each["best_run"].get("scores"), each.get("constant"))
        columns.append((f"{task.title}<br>{'/'.join(parts)}", "---:", *map(cell, found)))
    means = {what: "–" if mean.glue is None else f"{mean.glue:.1f}" for what, mean in average.items()}
    columns.append(("GLUE", "---:", means["median"], "", means["best_run"], ""))
    lines = [f"| {' | '.join(row)} |" for row in zip(*columns, strict=True)]
    lines += ["", f"Medians: {average['median']}."]
    lines += [f"Best runs: {average['best_run']}."] if average["best_run"].glue_without_wnli is not None else []
    lines += ["", "Settings with the best median on dev:", ""]
    for name, each in summary.items():
        low, high = each["score"]["min"], each["score"]["max"]
        diverged = f", {each['diverged']} diverged" if each["diverged"] else ""
        seeds_of = f"{each['setting']}, seeds {low:.1f} to {high:.1f}"
        tried = f"{each['runs']} runs of {each['settings_tried']} setting(s){diverged}"
        lines.append(f"- {TASKS[name].title}: {seeds_of}; {tried}; best run {each['best_run']['run']}")
    return "\n".join(lines) + "\n"


def cell(scores: dict[str, dict[str, float | None]] | None) -> str:
    """All scores of a task in one cell of a table; a dash where one is missing."""
    values = [value for metrics in (scores or {}).values() for value in metrics.values()]
    return "–" if not values or None in values else "/".join(f"{value:.1f}" for value in values)


def score_line(scores: dict[str, dict[str, float]], positive: str | None = None) -> str:
    """The scores of a run in one line."""
    several = len(scores) > 1
    return ", ".join(
        f"{METRICS[metric]}{f' of {positive}' if positive and metric == 'f1' else ''}{f' {name}' if several else ''} "
        f"{value:.1f}"
        for name, metrics in scores.items()
        for metric, value in metrics.items()
    )
