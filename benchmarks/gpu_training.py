"""Training speed: ``macaron train`` itself, HF Marian and nn.Transformer on the same pairs, in one run.

    python benchmarks/gpu_training.py data/prepared/deen-mix --out docs/results/gpu-training.json

Ours is the real command in a process of its own with an empty compile cache: recipe, data, dropout, logging, validation
and checkpoints as always, but both more often than usual so that a short run has some. Only its end is another.

- steady: the median of the log's intervals, which leave validation and checkpoints out
- sustained: from the first steady interval to the last line of the log by the wall clock, both included

The peers train eagerly under bfloat16 autocast with fused AdamW on padded batches of like length that lie on the device
before the clock starts: they are not charged for loading data, logging, validation and checkpoints. Tokens are real
target tokens everywhere: padding does not count, the end of a sentence does.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
import torch.nn.functional as F
from common import Shape, number
from torch import Tensor, nn

from macaron.data.batching import bucket, epoch_order
from macaron.data.prepared import PreparedData
from macaron.models import TranslationModel
from macaron.recipe import Recipe, configuration, load_recipe
from macaron.tasks.translation import TranslationBatch, padded_batch, short_pairs
from macaron.text.vocabulary import PAD

STEADY = 0.9  # of the final speed
LAID_OUT = 400  # batches of a peer on the device; then they come again


# Ours.


def train(recipe: Path, assignments: list[str], seconds: float, checkpoint_every: int) -> dict[str, Any]:
    """Run ``macaron train``, and read from its log how fast it was."""
    with tempfile.TemporaryDirectory(prefix="macaron-benchmark-") as folder:
        run, log = Path(folder, "run"), Path(folder, "log")
        arguments = [sys.executable, "-m", "macaron", "train", str(recipe), "--out", str(run)]
        arguments += [part for each in assignments for part in ("--set", each)]
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        started = time.time()
        with log.open("w") as file:
            process = subprocess.Popen(arguments, stdout=file, stderr=file, env=os.environ | caches)
            try:
                process.wait(seconds + 60)
            except subprocess.TimeoutExpired:  # what it wrote until now is measured all the same
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        ended = time.time()
        if not (run / "metrics.jsonl").is_file():
            sys.exit(f"macaron train failed with {process.returncode}:\n{log.read_text()[-3000:]}")
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        if process.returncode:
            print(f"macaron train ended with {process.returncode}:\n{log.read_text()[-3000:]}", file=sys.stderr)
        return {
            **speed(records, started, checkpoint_every),
            "command": " ".join(["macaron", *arguments[3:]]).replace(folder, "TMP"),
            "exit_code": process.returncode,
            "command_seconds": round(ended - started, 1),
            "log": records,
        }


def speed(records: list[dict[str, Any]], started: float, checkpoint_every: int) -> dict[str, Any]:
    """Steady and sustained speed from the lines of metrics.jsonl.

    :param started: when the command began (``time.time()``)
    """
    lines = [record for record in records if record.get("tokens_per_second")]
    if not lines:
        sys.exit("macaron train logged nothing in this time: give it more --seconds, or --set train.log_every=10")
    paces = [line["tokens_per_second"] for line in lines]
    begins = [(0, started), *((line["update"], line["time"]) for line in lines[:-1])]
    # What the second half settles at decides which interval was the first steady one; compilation is in the first.
    settled = statistics.median(paces[len(paces) // 2 :])
    first = next(i for i, pace in enumerate(paces) if pace >= STEADY * settled)
    update, since = begins[first]
    last = lines[-1]
    if all("targets" in line for line in lines):
        targets = sum(line["targets"] for line in lines[first:])
    else:
        # The log says how fast, not how many: an interval without a pause tells how many an update has.
        each = [
            pace * (line["time"] - begin) / (line["update"] - before)
            for pace, line, (before, begin) in zip(paces, lines, begins, strict=True)
        ]
        targets = round(statistics.median(each[first:]) * (last["update"] - update))
    span = max(last["time"] - since, 1e-9)
    every = checkpoint_every or sys.maxsize
    inside = [record for record in records if update < record["update"] <= last["update"]]
    return {
        "steady_tokens_per_second": round(statistics.median(paces[first:])),
        "sustained_tokens_per_second": round(targets / span),
        "sustained_seconds": round(span, 1),
        "sustained_updates": last["update"] - update,
        "sustained_targets": targets,
        "sustained_targets_counted": "targets" in last,
        "validations_inside": sum("valid_loss" in record for record in inside),
        "checkpoints_inside": last["update"] // every - update // every,
        "seconds_to_first_steady_line": round(lines[first]["time"] - started, 1),
        "seconds_to_steady_state": round(since - started, 1),
        "updates_per_second": round(statistics.median(paces[first:]) * (last["update"] - update) / max(targets, 1), 2),
        "peak_memory_gib": max((line["memory_gib"] for line in lines if line.get("memory_gib")), default=None),
    }


# The peers.


Forward = Callable[[TranslationBatch], Tensor]


def marian_peer(shape: Shape, device: torch.device) -> tuple[nn.Module, Forward]:
    model = common.marian(shape).to(device)

    def forward(batch: TranslationBatch) -> Tensor:
        real = (batch.source != PAD).long()
        return model(
            input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.previous, use_cache=False
        ).logits

    return model, forward


def plain_peer(shape: Shape, device: torch.device) -> tuple[nn.Module, Forward]:
    model = common.PlainTransformer(shape).to(device)
    return model, lambda batch: model(batch.source, batch.previous)


PEERS = {"HF Marian": marian_peer, "nn.Transformer": plain_peer}


def train_peer(
    name: str,
    shape: Shape,
    batches: list[tuple[TranslationBatch, int]],
    smoothing: float,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Train a peer for that long after a warm-up.

    :param batches: each with its number of real targets
    """
    torch.manual_seed(1)
    common.reset_peak(device)
    model, forward = PEERS[name](shape, device)
    model.train()
    on_gpu = device.type == "cuda"
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=1e-4, fused=on_gpu)

    def step(batch: TranslationBatch) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            logits = forward(batch)
            loss = F.cross_entropy(
                logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, label_smoothing=smoothing
            )
        torch.autograd.backward(loss)
        adam.step()
        adam.zero_grad(set_to_none=True)

    widest = max(batches, key=lambda pair: pair[0].source.numel() + pair[0].target.numel())[0]
    for batch in [widest, *(batch for batch, _ in batches[: 20 if on_gpu else 1])]:
        step(batch)
    common.wait(device)
    targets = steps = positions = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds or not steps:
        batch, real = batches[steps % len(batches)]
        step(batch)
        targets, steps, positions = targets + real, steps + 1, positions + batch.target.numel()
    common.wait(device)
    elapsed = time.monotonic() - start
    return {
        "tokens_per_second": round(targets / elapsed),
        "updates_per_second": round(steps / elapsed, 2),
        "targets_per_step": round(targets / steps),
        "padding": round(1 - targets / positions, 3),
        "parameters": common.trained_parameters(model),
        "precision": "bfloat16 autocast" if on_gpu else "float32",
        "seconds": round(elapsed, 2),
        "peak_memory_gib": common.peak_gib(device),
    }


def peer_batches(
    data: PreparedData, recipe: Recipe, size: int, device: torch.device
) -> list[tuple[TranslationBatch, int]]:
    """Batches of the pairs that ours trains on, of like length, in random order, on the device."""
    pairs, settings = data.pairs("train"), recipe.train
    packs = settings.packs(device.type == "cuda")
    kept = short_pairs(pairs, min(settings.row_tokens, settings.max_length) if packs else settings.max_length)
    source, target = pairs.source.lengths(), pairs.target.lengths()
    found = bucket(source[kept], target[kept], size, settings.seed)
    chosen = [kept[found[i]] for i in epoch_order(len(found), settings.seed, 1)[:LAID_OUT]]
    return [(padded_batch(pairs, indices, device), int(target[indices].sum())) for indices in chosen]


def show(result: dict[str, Any]) -> None:
    ours, name = result["ours"], f"macaron train, {result['preset']}"
    rows = [row(f"{name}, {kind}", "", ours, ours[f"{kind}_tokens_per_second"]) for kind in ("steady", "sustained")]
    for label, peer in result["peers"].items():
        rows.append(row(label, number(result["ratios"].get(label), ".2f"), peer, peer.get("tokens_per_second")))
    headers = ["system", "ours / it", "real target tokens/s", "updates/s", "parameters", "peak GiB"]
    common.print_table(headers, rows)
    print(
        f"Ratios are of the sustained speed: {ours['sustained_seconds']} s, with {ours['validations_inside']} "
        f"validations and {ours['checkpoints_inside']} checkpoints.\n"
        f"Steady from {ours['seconds_to_steady_state']} s after the start of the command, first steady line at "
        f"{ours['seconds_to_first_steady_line']} s; the whole command took {ours['command_seconds']} s."
    )


def row(label: str, ratio: str, system: dict[str, Any], tokens: float | None) -> list[str]:
    numbers = [number(system.get("updates_per_second"), ".1f"), number(system.get("parameters"))]
    label += f" ({system['error'][:60]})" if "error" in system else ""
    return [label, ratio, number(tokens), *numbers, number(system.get("peak_memory_gib"), ".2f")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder that macaron prepare wrote")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/deen-mix.toml"))
    parser.add_argument("--preset", help="of our model (default: the recipe's)")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=70, help="of macaron train, its start included")
    parser.add_argument("--peer-seconds", type=float, default=8, help="of each peer, after its warm-up")
    parser.add_argument("--peer-batches", type=int, nargs="*", default=[4096, 16384], help="positions in a batch")
    parser.add_argument("--validate-every", type=int, default=500, help="updates; the recipe's if that is less")
    parser.add_argument("--checkpoint-every", type=int, default=1000, help="updates; likewise")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    arguments = parser.parse_args()

    device = common.choose_device(arguments.device)
    assignments = [f'data.out="{arguments.data}"', f"train.max_minutes={arguments.seconds / 60:.4f}"]
    assignments.append(f"train.device={device.type}")
    assignments += [f"model.preset={arguments.preset}"] if arguments.preset else []
    usual = load_recipe(arguments.recipe, assignments).train
    for key in ("validate_every", "checkpoint_every"):
        often, wanted = getattr(usual, key), getattr(arguments, key)
        assignments.append(f"train.{key}={min(often, wanted) if often else wanted}")
    assignments += arguments.settings
    recipe = load_recipe(arguments.recipe, assignments)
    data = PreparedData.open(arguments.data)
    config: Any = configuration(recipe, data.vocab_size)
    with torch.device("meta"):
        parameters = common.trained_parameters(TranslationModel(config))
    shape = Shape.of(config)

    print(f"macaron train for {arguments.seconds:.0f} s ...", flush=True)
    ours = train(arguments.recipe, assignments, arguments.seconds, recipe.train.checkpoint_every)
    result: dict[str, Any] = {
        "ratios": {},
        "preset": recipe.model.preset,
        "ours": {"parameters": parameters, **{key: ours[key] for key in ours if key != "log"}},
        "peers": {},
        "shape": shape.to_dict(),
        "command": common.command(),
        "environment": common.environment(device),
        "log": ours["log"],
    }
    common.write_json(arguments.out, result)
    for size in arguments.peer_batches:
        batches = peer_batches(data, recipe, size, device)
        for peer in PEERS:
            name = f"{peer}, eager, {size:,}"
            print(f"{name} ...", flush=True)
            try:
                found = train_peer(peer, shape, batches, recipe.train.label_smoothing, device, arguments.peer_seconds)
                result["ratios"][name] = round(ours["sustained_tokens_per_second"] / found["tokens_per_second"], 2)
            except Exception as error:
                found = {"error": common.failure(error)}
            result["peers"][name] = found
            common.write_json(arguments.out, result)
    show(result)


if __name__ == "__main__":
    main()
