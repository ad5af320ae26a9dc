"""Where the time of a training step goes: the real loop, some of its updates under torch.profiler.

    python benchmarks/profile_step.py data/prepared/deen-mix --out docs/results/profile-step.json

The loop trains as always. After a warm-up, one window of updates is timed as it is and the next under the profiler.
Kernels are put into groups by name; those of the loss and the optimiser also by the operator that launched them, and
where a CUDA graph launched them all, a matrix product belongs to the loss if other kernels of the loss are beside it.
``idle`` is what the kernels leave of a step's time *without* the profiler, which slows Python down.

On a CPU, the times are those of operators without the operators they call, all under the profiler.
"""

import argparse
import bisect
import json
import re
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import common
import torch
from torch.profiler import ProfilerActivity, profile

from macaron.recipe import load_recipe
from macaron.tasks.pretraining import PretrainingTask
from macaron.tasks.translation import TranslationTask
from macaron.train.distributed import Processes
from macaron.train.loop import Trainer
from macaron.train.task import MicroBatch, Task

PRODUCTS, ATTENTION, LOSS, OPTIMISER = "matrix products", "attention", "loss", "optimiser"
LOSS_PRODUCTS, EMBEDDING, COPIES = "loss: matrix products", "embedding", "copies and casts"
OTHERS = "norm, dropout, elementwise"
ORDER = [PRODUCTS, ATTENTION, OTHERS, LOSS_PRODUCTS, LOSS, EMBEDDING, OPTIMISER, COPIES]
#: The first group whose pattern a name has takes it; the names are those of CUDA kernels and of operators.
GROUPS = {
    ATTENTION: r"flash|fmha|attention|sdpa|^attend",
    OPTIMISER: r"adam|multi_tensor_apply|lerp|_foreach|triton_for_",
    EMBEDDING: r"embedding|vectorized_gather|indexSelect|compute_grad_weight|indexing_backward|radixSort|cub::",
    LOSS: r"smoothed_loss|logsumexp|log_softmax|nll_loss|cross_entropy|gather|scatter",
    PRODUCTS: r"gemm|nvjet|cutlass|cublas|xmma|wgmma|splitK|triton_tem|::_?(add|b|baddb)?mm|matmul|linear",
    COPIES: r"memcpy|memset|copy|clone|contiguous|CatArray|::cat|::_?to$|_to_copy|fill|zero_",
}
#: Generated kernels are named after all that was fused into them, a matrix product's bias for example.
GENERATED = re.compile(r"triton_(poi|red|per|mix)_")
GENERATED_GROUPS = {
    EMBEDDING: GROUPS[EMBEDDING],
    LOSS: GROUPS[LOSS],
    COPIES: r"fused(__to_copy|_clone|_t|_view|_transpose)+_\d+$",
}
#: What an operator launches belongs to a group whatever its name.
RANGES = {LOSS: re.compile("CrossEntropy"), OPTIMISER: re.compile(r"Optimizer\.step")}
NEAR = 3  # a matrix product of the loss has another kernel of it among its nearest, this many on each side

Event = dict[str, Any]
Ranges = dict[Any, list[tuple[float, float, str]]]


class Enough(Exception):
    """The windows are over."""


class Watched(Task):
    """A task that counts the batches that the loop asks for, and profiles the second window of them."""

    def watch(self, warm_up: int, window: int, activities: list[ProfilerActivity]) -> None:
        self.count, self.window, self.targets = -warm_up, window, 0
        self.profiler = profile(activities=activities)
        self.since = self.step_seconds = self.profiled_seconds = 0.0

    def plan(self, number: int) -> list[MicroBatch]:
        """The micro-batches; making one of them counts."""
        found = super().plan(number)
        return [replace(planned, collate=partial(self.collate, planned)) for planned in found]

    def collate(self, planned: MicroBatch, device: torch.device) -> Any:
        if self.count in (0, self.window, 2 * self.window):
            common.wait(device)
            now = time.monotonic()
            if self.count == self.window:
                self.step_seconds = now - self.since
                self.profiler.start()
            elif self.count == 2 * self.window:
                self.profiled_seconds = now - self.since
                self.profiler.stop()
                raise Enough
            self.since = time.monotonic()
        self.targets += planned.targets if 0 <= self.count < self.window else 0
        self.count += 1
        return planned.collate(device)


class WatchedTranslation(Watched, TranslationTask):
    """Translation."""


class WatchedPretraining(Watched, PretrainingTask):
    """Pre-training."""


@dataclass(frozen=True)
class Slice:
    """Something that took time, in microseconds: a kernel, or an operator without those it called."""

    name: str
    start: float
    time: float
    inside: str | None  # the group of the operator around it


def group_of(name: str) -> str:
    """The group of a kernel or operator by its name."""
    groups = GENERATED_GROUPS if GENERATED.match(name) else GROUPS
    return next((group for group, pattern in groups.items() if re.search(pattern, name, re.IGNORECASE)), OTHERS)


def grouped(slices: list[Slice]) -> list[str]:
    """The group of each, in the order of time."""
    by_name = [group_of(each.name) for each in slices]
    found = []
    for i, (each, group) in enumerate(zip(slices, by_name, strict=True)):
        of_loss = each.inside == LOSS
        if each.inside is None and group == PRODUCTS:
            of_loss = LOSS in by_name[max(0, i - NEAR) : i + NEAR + 1]
        if of_loss:
            found.append(LOSS_PRODUCTS if group == PRODUCTS else LOSS)
        else:
            found.append(each.inside or group)
    return found


def kernels(events: list[Event]) -> list[Slice]:
    """The kernels and copies of a trace, in the order of time."""
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    ranges, found = known_ranges(events), []
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            launch = launches.get(event.get("args", {}).get("correlation"))
            inside = surrounding(ranges, launch) if launch is not None else None
            found.append(Slice(event["name"], event["ts"], event["dur"], inside))
    return sorted(found, key=lambda each: each.start)


def operators(events: list[Event]) -> list[Slice]:
    """The operators of a trace, each without the time of those it called, in the order of time."""
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            threads[event["tid"]].append(event)
    ranges, found = known_ranges(events), []
    for those in threads.values():
        those.sort(key=lambda event: (event["ts"], -event["dur"]))
        own = [event["dur"] for event in those]
        around: list[int] = []
        for i, event in enumerate(those):
            while around and those[around[-1]]["ts"] + those[around[-1]]["dur"] <= event["ts"]:
                around.pop()
            if around:
                own[around[-1]] -= event["dur"]
            around.append(i)
        for event, rest in zip(those, own, strict=True):
            found.append(Slice(event["name"], event["ts"], max(rest, 0.0), surrounding(ranges, event)))
    return sorted(found, key=lambda each: each.start)


def known_ranges(events: list[Event]) -> Ranges:
    """For each thread, when it was in an operator that stands for a group."""
    marked: Ranges = defaultdict(list)
    for event in events:
        if event.get("cat") in ("cpu_op", "user_annotation"):
            for group, pattern in RANGES.items():
                if pattern.search(event["name"]):
                    marked[event["tid"]].append((event["ts"], event["ts"] + event["dur"], group))
    ranges: Ranges = {}
    for thread, those in marked.items():
        ranges[thread] = []
        for begin, end, group in sorted(those, key=lambda each: (each[0], -each[1])):
            if not ranges[thread] or begin > ranges[thread][-1][1]:  # otherwise it lies in the one before
                ranges[thread].append((begin, end, group))
    return ranges


def surrounding(ranges: Ranges, event: Event) -> str | None:
    those = ranges.get(event["tid"], [])
    place = bisect.bisect_right(those, event["ts"], key=lambda each: each[0]) - 1
    return those[place][2] if place >= 0 and event["ts"] <= those[place][1] else None


def busy(slices: list[Slice]) -> float:
    """Microseconds in which at least one kernel ran."""
    total, until = 0.0, float("-inf")
    for each in slices:
        end = each.start + each.time
        total += max(0.0, end - max(each.start, until))
        until = max(until, end)
    return total


def table(slices: list[Slice], window: int, step_ms: float, rest: str, busy_ms: float) -> dict[str, Any]:
    """Milliseconds of a step by group, and by name."""
    times: dict[str, float] = dict.fromkeys(ORDER, 0.0)
    names: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each, group in zip(slices, grouped(slices), strict=True):
        times[group] += each.time / 1000 / window
        names[group, each.name].append(each.time / 1000 / window)
    times[rest] = max(0.0, step_ms - busy_ms)
    longest = sorted(names.items(), key=lambda item: -sum(item[1]))[:40]
    return {
        "milliseconds": {group: round(value, 3) for group, value in times.items()},
        "share": {group: round(value / step_ms, 4) for group, value in times.items()},
        "longest": [
            {"group": group, "name": name[:160], "milliseconds": round(sum(each), 3), "calls": len(each) / window}
            for (group, name), each in longest
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder that macaron prepare wrote")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/deen-mix.toml"))
    parser.add_argument("--preset", help="of the model (default: the recipe's)")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--warm-up", type=int, default=30, help="updates")
    parser.add_argument("--window", type=int, default=10, help="updates")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    arguments = parser.parse_args()

    device = common.choose_device(arguments.device)
    on_gpu = device.type == "cuda"
    # Nothing but updates in the windows.
    assignments = [f'data.out="{arguments.data}"', f"train.device={device.type}", "train.max_epochs=1000"]
    assignments += [f"train.{name}_every=1000000" for name in ("log", "validate", "checkpoint")]
    assignments += [f"model.preset={arguments.preset}"] if arguments.preset else []
    recipe = load_recipe(arguments.recipe, [*assignments, *arguments.settings])
    parts, window = recipe.train.accumulate, arguments.window
    task = (WatchedPretraining if recipe.kind == "text" else WatchedTranslation)(recipe)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    task.watch(arguments.warm_up * parts, window * parts, activities)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="macaron-benchmark-") as folder:
        try:
            Trainer(task, recipe.train, Path(folder), Processes()).fit(resume=False)
        except Enough:
            seconds = time.monotonic() - start
        task.profiler.export_chrome_trace(f"{folder}/trace.json")
        events: list[Event] = json.loads(Path(folder, "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X"]

    step_ms, profiled_ms = (1000 * each / window for each in (task.step_seconds, task.profiled_seconds))
    slices = kernels(events) if on_gpu else operators(events)
    busy_ms = (busy(slices) if on_gpu else sum(each.time for each in slices)) / 1000 / window
    if on_gpu and not slices:
        print("The profiler saw no kernels: is CUPTI allowed on this machine?")
    base_ms, rest = (step_ms, "idle") if on_gpu else (profiled_ms, "between operators (Python)")
    found = table(slices, window, base_ms, rest, busy_ms)
    result = {
        **{key: found[key] for key in ("share", "milliseconds")},
        "step_milliseconds": round(step_ms, 3),
        "profiled_step_milliseconds": round(profiled_ms, 3),
        "busy_milliseconds": round(busy_ms, 3),
        "target_tokens_per_second": round(task.targets / task.step_seconds),
        "kernels_per_step" if on_gpu else "operators_per_step": len(slices) / window,
        "launches_per_step": sum("Launch" in e["name"] for e in events if e.get("cat", "")[:5] == "cuda_") / window,
        "seconds_in_all": round(seconds, 1),
        "recipe": recipe.to_data(),
        "command": common.command(),
        "environment": common.environment(device),
        "longest": found["longest"],
    }
    common.write_json(arguments.out, result)
    rows = [[group, f"{100 * found['share'][group]:.1f} %", f"{ms:.3f}"] for group, ms in found["milliseconds"].items()]
    common.print_table(["group", "share of a step", "ms"], [*rows, ["a step", "", f"{base_ms:.3f}"]])
    print(
        f"{result['target_tokens_per_second']:,} target tokens/s; under the profiler a step took {profiled_ms:.2f} ms."
    )


if __name__ == "__main__":
    main()
