"""Language models on a GPU: the speed of ``macaron train`` beside HF's GPT-2, and twins trained for some minutes each.

    python benchmarks/gpu_lm.py data/prepared/gpt-mix --out docs/results/gpu/lm
    python benchmarks/gpu_lm.py data/prepared/gpt-mix --out docs/results/gpu/lm --train gpt-small macaron-gpt-small

**speed** (speed.json): all predict the next token in rows of 1,024, with the same number of tokens in an update,
bfloat16 and dropout; an update is forward, backward and AdamW. Ours is the real command in a process of its own with an
empty compile cache, as in gpu_pretraining.py, which explains steady and sustained speed. Documents share its rows and
do not attend to each other. The peer is given rows that are full, cut from the same text, laid out before the clock
starts. Its attention is plainly causal, across documents: it needs no mask, loses nothing to padding, and is not
charged for data, logging, validation and checkpoints. Its speed, as our steady one, is a median of windows of some
updates; of several batch sizes the fastest counts.

**--train** (PRESET.json): ``macaron train`` with each preset for ``--minutes``, its start included, then ``macaron
evaluate`` on the documents held out: perplexity per token and per word. Nothing else differs between twins.
``--together``: all at the same time on one GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import common
import torch
from common import number
from gpu_pretraining import LAID_OUT, Inputs, train_peer
from gpu_training import train

from macaron.data.prepared import PreparedText
from macaron.models import LanguageConfig, LanguageModel
from macaron.recipe import configuration, load_recipe


def gpt2(config: LanguageConfig, positions: int) -> Any:
    """HF's GPT-2 of that size with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_embd=config.hidden_size,
            n_layer=config.num_hidden_layers,
            n_head=config.num_attention_heads,
            n_inner=config.intermediate_size,
            n_positions=max(1024, positions),
            resid_pdrop=float(config.dropout),
            embd_pdrop=float(config.dropout),
            attn_pdrop=float(config.attention_dropout),
            bos_token_id=2,
            eos_token_id=2,
            attn_implementation="sdpa",
            use_cache=False,
        )
    )


def peer_batches(data: PreparedText, rows: int, length: int, device: torch.device) -> list[tuple[Inputs, int]]:
    """Full rows of consecutive tokens; each batch with its number of tokens."""
    ids = torch.from_numpy(data.sentences("train").ids[: LAID_OUT * rows * length].astype("int64"))
    count = max(1, len(ids) // (rows * length))
    while len(ids) < rows * length:  # a tiny corpus
        ids = torch.cat([ids, ids])
    batches = ids[: count * rows * length].view(count, rows, length).to(device)
    return [({"input_ids": batch, "labels": batch}, rows * length) for batch in batches]


def twin(preset: str, assignments: list[str], arguments: argparse.Namespace, device: torch.device) -> str:
    """Train a preset for some minutes, measure its perplexity, and write both; a line about them."""
    run = arguments.runs / preset
    values = {"model.preset": preset, "train.max_minutes": arguments.minutes}
    settings = [*assignments, *(f"{key}={value}" for key, value in values.items())]
    train_command = [sys.executable, "-m", "macaron", "train", str(arguments.recipe), "--out", str(run)]
    train_command += [part for each in settings for part in ("--set", each)]
    evaluate_command = [sys.executable, "-m", "macaron", "evaluate", str(run), "--json", "--device", device.type]
    started = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / f"{preset}.log").open("w") as said:
        trained = subprocess.run(train_command, stderr=said, timeout=60 * arguments.minutes + 120, check=False)
        seconds = time.monotonic() - started
        found = subprocess.run(
            evaluate_command, stdout=subprocess.PIPE, stderr=said, text=True, timeout=180, check=False
        )
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if not log:
        return f"{preset}: nothing was trained, see {said.name}"
    held_out = json.loads(found.stdout) if not found.returncode else {}
    result = {
        "preset": preset,
        "minutes": arguments.minutes,
        "together": arguments.together,
        "exit_codes": [trained.returncode, found.returncode],
        "command_seconds": round(seconds, 1),
        "updates": log[-1]["update"],
        "held_out": held_out,
        "commands": [" ".join(["macaron", *each[3:]]) for each in (train_command, evaluate_command)],
        "environment": common.environment(device),
        "log": log,
    }
    common.write_json(arguments.out / f"{preset}.json", result)
    values = [number(held_out.get(f"perplexity_per_{each}"), ".2f") for each in ("token", "word")]
    return f"{preset}: {log[-1]['update']:,} updates, perplexity per token {values[0]}, per word {values[1]}"


def speed(assignments: list[str], arguments: argparse.Namespace, device: torch.device) -> None:
    """Measure ours and the peers, and write and print the numbers."""
    data, out = PreparedText.open(arguments.data), arguments.out / "speed.json"
    values = {
        "train.max_minutes": f"{arguments.seconds / 60:.4f}",
        "train.validate_every": 10 * arguments.log_every,
        "train.checkpoint_every": 100 * arguments.log_every,
    }
    assignments = [*assignments, *(f"{key}={value}" for key, value in values.items())]
    result: dict[str, Any] = {
        "ratios": {},
        "length": arguments.length,
        "batch_tokens": arguments.batch_tokens,
        "ours": {},
        "peers": {},
        "command": common.command(),
        "environment": common.environment(device),
    }
    table = []
    for preset in arguments.presets:
        chosen = [*assignments, f"model.preset={preset}"]
        recipe = load_recipe(arguments.recipe, chosen)
        config: Any = configuration(recipe, data.vocab_size)
        with torch.device("meta"):
            parameters = common.trained_parameters(LanguageModel(config))
        print(f"macaron train, {preset}, for {arguments.seconds:.0f} s ...", flush=True)
        ours = train(arguments.recipe, chosen, arguments.seconds, recipe.train.checkpoint_every)
        result["ours"][preset] = {"parameters": parameters, **ours}
        common.write_json(out, result)
        memory = number(ours["peak_memory_gib"], ".1f")
        for kind in ("steady", "sustained"):
            table.append([f"macaron train, {preset}, {kind}", number(ours[f"{kind}_tokens_per_second"]), memory])
    config = configuration(load_recipe(arguments.recipe, [*assignments, "model.preset=gpt-small"]), data.vocab_size)
    for peer in arguments.peers:
        for size in arguments.peer_batch_tokens or [arguments.batch_tokens]:
            name = f"HF GPT-2, {peer}, {size:,}"
            print(f"{name} ...", flush=True)
            given = peer_batches(data, max(1, size // arguments.length), arguments.length, device)
            try:
                build = partial(gpt2, config, arguments.length)
                found = train_peer(build, given, peer == "compiled", device, arguments.peer_seconds)
            except Exception as error:  # the other peers are measured all the same
                found = {"error": common.failure(error)}
            result["peers"][name] = found
            memory = number(found.get("peak_memory_gib"), ".1f")
            table.append([name, number(found.get("tokens_per_second")), memory])
            common.write_json(out, result)
    best = max((each.get("tokens_per_second", 0) for each in result["peers"].values()), default=0)
    for preset, ours in result["ours"].items() if best else ():
        result["ratios"][preset] = {
            kind: round(ours[f"{kind}_tokens_per_second"] / best, 2) for kind in ("steady", "sustained")
        }
    common.write_json(out, result)
    common.print_table(["system", "tokens/s", "peak GiB"], table)
    for preset, ratios in result["ratios"].items():
        print(f"{preset} / the fastest peer: " + ", ".join(f"{kind} {each:.2f}" for kind, each in ratios.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of documents that macaron prepare wrote")
    parser.add_argument("--train", nargs="+", metavar="PRESET", help="train these instead of measuring speed")
    parser.add_argument("--minutes", type=float, default=5, help="for each of them, its start included")
    parser.add_argument("--together", action="store_true", help="train them at the same time")
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu-lm"), help="the folder for the runs")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/gpt-mix.toml"))
    parser.add_argument("--presets", nargs="+", default=["gpt-small", "macaron-gpt-small"], help="measured for speed")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--batch-tokens", type=int, help="in an update, ours and the peer's; for speed 65,536")
    parser.add_argument("--peer-batch-tokens", type=int, nargs="*", default=[], help="others for the peer")
    parser.add_argument("--dropout", type=float, help="of all, in attention too; for speed 0.1")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=40, help="of macaron train for speed, its start included")
    parser.add_argument("--peer-seconds", type=float, default=10, help="of each peer, after its warm-up")
    parser.add_argument("--peers", nargs="*", choices=["eager", "compiled"], default=["compiled"])
    parser.add_argument("--log-every", type=int, default=20, help="updates")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the numbers, as JSON")
    arguments = parser.parse_args()
    device = common.choose_device(arguments.device)
    measures = arguments.train is None
    dropout = 0.1 if measures and arguments.dropout is None else arguments.dropout
    if measures and arguments.batch_tokens is None:
        arguments.batch_tokens = 65_536
    values = {
        "data.out": f'"{arguments.data}"',
        "model.dropout": dropout,
        "model.attention_dropout": dropout,
        "train.device": device.type,
        "train.row_tokens": arguments.length,
        "train.batch_tokens": arguments.batch_tokens,
        "train.log_every": arguments.log_every,
    }
    assignments = [f"{key}={value}" for key, value in values.items() if value is not None] + arguments.settings
    if measures:
        speed(assignments, arguments, device)
        return
    with ThreadPoolExecutor(len(arguments.train) if arguments.together else 1) as pool:
        for line in pool.map(lambda preset: twin(preset, assignments, arguments, device), arguments.train):
            print(line, flush=True)


if __name__ == "__main__":
    main()
