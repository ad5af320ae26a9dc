"""Language models on a GPU: the speed of ``macaron train`` beside HF's GPT-2, and twins trained for some minutes each.

    python benchmarks/gpu_lm.py data/prepared/pretrain-mix --out docs/results/gpu/lm
    python benchmarks/gpu_lm.py data/prepared/pretrain-mix --out docs/results/gpu/lm --parts gpt-small
    python benchmarks/gpu_lm.py data/prepared/pretrain-mix --out docs/results/gpu/lm --parts macaron-gpt-small

**speed** (speed.json): both predict the next token in rows of 1,024, with the same number of tokens in an update,
bfloat16 and dropout. Ours is the real command in a process of its own with an empty compile cache, as in
gpu_pretraining.py, which explains steady and sustained speed. Documents share its rows and do not attend to each other.
The peer is given rows that are full, cut from the same text, laid out before the clock starts. Its attention is plainly
causal, across documents: it needs no mask, loses nothing to padding, and is not charged for data, logging, validation
and checkpoints.

**a preset** (PRESET.json): ``macaron train`` with this preset for ``--minutes``, its start included, then ``macaron
evaluate`` on the documents held out: perplexity per token and per word. Nothing else differs between twins.
"""

import argparse
import json
import subprocess
import sys
import time
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


def twin(preset: str, assignments: list[str], arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Train a preset for some minutes, and measure its perplexity."""
    run = arguments.out / f"run-{preset}"
    values = {"model.preset": preset, "train.max_minutes": arguments.minutes}
    settings = [*assignments, *(f"{key}={value}" for key, value in values.items())]
    train_command = [sys.executable, "-m", "macaron", "train", str(arguments.recipe), "--out", str(run)]
    train_command += [part for each in settings for part in ("--set", each)]
    evaluate_command = [sys.executable, "-m", "macaron", "evaluate", str(run), "--json", "--device", device.type]
    started = time.monotonic()
    subprocess.run(train_command, check=True, timeout=60 * arguments.minutes + 120)
    seconds = time.monotonic() - started
    print(f"trained in {seconds:.0f} s; evaluating ...", flush=True)
    found = subprocess.run(evaluate_command, check=True, timeout=180, stdout=subprocess.PIPE, text=True)
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "preset": preset,
        "minutes": arguments.minutes,
        "command_seconds": round(seconds, 1),
        "updates": log[-1]["update"],
        "held_out": json.loads(found.stdout),
        "commands": [" ".join(["macaron", *each[3:]]) for each in (train_command, evaluate_command)],
        "environment": common.environment(device),
        "log": log,
    }


def speed(assignments: list[str], arguments: argparse.Namespace, device: torch.device) -> None:
    """Measure ours and the peers, and write and print the numbers."""
    data, out = PreparedText.open(arguments.data), arguments.out / "speed.json"
    values = {
        "model.preset": arguments.preset,
        "train.max_minutes": f"{arguments.seconds / 60:.4f}",
        "train.validate_every": 10 * arguments.log_every,
        "train.checkpoint_every": 100 * arguments.log_every,
    }
    assignments = [*assignments, *(f"{key}={value}" for key, value in values.items())]
    recipe = load_recipe(arguments.recipe, assignments)
    config = configuration(recipe, data.vocab_size)
    assert isinstance(config, LanguageConfig)
    with torch.device("meta"):
        parameters = common.trained_parameters(LanguageModel(config))
    print(f"macaron train for {arguments.seconds:.0f} s ...", flush=True)
    ours = train(arguments.recipe, assignments, arguments.seconds, recipe.train.checkpoint_every)
    result: dict[str, Any] = {
        "ratios": {},
        "preset": arguments.preset,
        "length": arguments.length,
        "batch_tokens": arguments.batch_tokens,
        "ours": {"parameters": parameters, **ours},
        "peers": {},
        "command": common.command(),
        "environment": common.environment(device),
    }
    given = peer_batches(data, max(1, arguments.batch_tokens // arguments.length), arguments.length, device)
    speeds = {kind: ours[f"{kind}_tokens_per_second"] for kind in ("steady", "sustained")}
    rows = [[f"macaron train, {arguments.preset}, {kind}", number(speed), "", ""] for kind, speed in speeds.items()]
    for peer in arguments.peers:
        name = f"HF GPT-2, {peer}"
        print(f"{name} ...", flush=True)
        try:
            found = train_peer(
                lambda: gpt2(config, arguments.length), given, peer == "compiled", device, arguments.peer_seconds
            )
            ratios = {kind: round(speed / found["tokens_per_second"], 2) for kind, speed in speeds.items()}
            result["ratios"][name] = ratios
        except Exception as error:  # the other peer is measured all the same
            found, ratios = {"error": common.failure(error)}, {}
        result["peers"][name] = found
        shown = " ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
        memory = number(found.get("peak_memory_gib"), ".1f")
        rows.append([name, number(found.get("tokens_per_second")), shown, memory])
        common.write_json(out, result)
    common.write_json(out, result)
    common.print_table(["system", "tokens/s", "ours / it", "peak GiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of documents that macaron prepare wrote")
    parser.add_argument("--parts", nargs="+", default=["speed"], help="speed, or presets to train")
    parser.add_argument("--minutes", type=float, default=5, help="for each preset, its start included")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/macaron-gpt-small.toml"))
    parser.add_argument("--preset", default="macaron-gpt-small", help="whose speed is measured")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--batch-tokens", type=int, default=32_768, help="tokens in an update, ours and the peer's")
    parser.add_argument("--dropout", type=float, default=0.1, help="of all, in attention too")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=90, help="of macaron train, its start included")
    parser.add_argument("--peer-seconds", type=float, default=10, help="of each peer, after its warm-up")
    parser.add_argument("--peers", nargs="*", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--log-every", type=int, default=20, help="updates")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the numbers, as JSON, and the runs")
    arguments = parser.parse_args()
    device = common.choose_device(arguments.device)
    values = {
        "data.out": f'"{arguments.data}"',
        "model.dropout": arguments.dropout,
        "model.attention_dropout": arguments.dropout,
        "train.max_updates": "",
        "train.device": device.type,
        "train.row_tokens": arguments.length,
        "train.batch_tokens": arguments.batch_tokens,
        "train.accumulate": 1,
        "train.log_every": arguments.log_every,
    }
    assignments = [*(f"{key}={value}" for key, value in values.items()), *arguments.settings]
    for part in arguments.parts:
        print(f"{part} ...", flush=True)
        if part == "speed":
            speed(assignments, arguments, device)
            continue
        found = twin(part, assignments, arguments, device)
        common.write_json(arguments.out / f"{part}.json", found)
        held = found["held_out"]
        print(
            f"{part}: {found['updates']:,} updates, perplexity per token {held['perplexity_per_token']:.2f}, per word "
            f"{held['perplexity_per_word']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
