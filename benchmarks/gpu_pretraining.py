"""Speed of pre-training: ``macaron train`` itself and HF's BertForPreTraining on the same texts, in one run.

    python benchmarks/gpu_pretraining.py data/prepared/pretrain-mix --out docs/results/gpu-pretraining.json

Both learn masked words and next sentences from texts of up to 128 and 512 tokens, with the same number of tokens in an
update, bfloat16 and dropout. Ours is the real command in a process of its own with an empty compile cache: recipe,
data, masking, logging, validation and checkpoints as always, but validation more often, so that a short run has some.

- steady: the median of the log's intervals, which leave validation and checkpoints out
- sustained: from the first steady interval to the last line of the log by the wall clock, both included

The peer is given only texts that fill their rows, as many as there are, laid out and masked before the clock starts: it
loses nothing to padding, needs no mask for attention, and is not charged for data, logging, validation and checkpoints.
Tokens are real tokens everywhere: padding does not count.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from common import number
from gpu_training import train
from torch import Tensor

from macaron.data.batching import Rows
from macaron.data.prepared import PreparedText
from macaron.data.pretraining_texts import Corpus, masked_counts
from macaron.models import EncoderConfig, EncoderForPreTraining
from macaron.recipe import Recipe, load_recipe
from macaron.tasks import pretraining_batches as batches
from macaron.tasks.pretraining import encoder_config
from macaron.text.vocabulary import PAD

LAID_OUT = 64  # batches of the peer on the device; then they come again

Inputs = dict[str, Tensor]


def bert(config: EncoderConfig, positions: int) -> Any:
    """HF's BERT of that size with random weights."""
    from transformers import BertConfig, BertForPreTraining

    return BertForPreTraining(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            hidden_dropout_prob=float(config.dropout),
            attention_probs_dropout_prob=float(config.attention_dropout),
            max_position_embeddings=max(512, positions),
            pad_token_id=PAD,
            attn_implementation="sdpa",
        )
    )


def peer_batches(data: PreparedText, recipe: Recipe, device: torch.device) -> list[tuple[Inputs, int]]:
    """Texts that ours trains on, one in a row, masked as ours; each batch with its number of real tokens."""
    settings, chosen = recipe.train, recipe.pretrain
    store = data.sentences("train")
    corpus = Corpus(store.offsets, data.documents("train"))
    shape = batches.Shape.of(settings, chosen, corpus)
    made = batches.plan(corpus, shape, settings, chosen, (settings.seed, 1), 1)
    full = np.flatnonzero(made.spans.lengths == shape.width)
    if len(full) < shape.rows:  # a tiny corpus: then with padding
        full = np.argsort(-made.spans.lengths, kind="stable")
    full = np.random.default_rng(1).permutation(full)[: LAID_OUT * shape.rows]
    count = max(1, len(full) // shape.rows)
    alone = replace(
        made,
        rows=Rows(full, np.arange(len(full)), len(full)),
        counts=np.minimum(masked_counts(made.spans.words[full], chosen.ratio), shape.masked // shape.rows),
        weights=np.ones((count, 2)),
    )
    words = range(batches.FIRST_WORD, data.vocab_size)
    found = []
    for index in range(count):
        batch = batches.on_device(batches.collate(store.ids, alone, index, shape, chosen, words, 0), device)
        rows = int((batch.follows >= 0).sum())  # the last batch of a tiny corpus is not full
        labels = torch.full((shape.size,), -100, device=device)
        known = batch.targets != PAD
        labels[batch.masked[known]] = batch.targets[known]
        real = batch.text > 0
        inputs = {
            "input_ids": batch.ids[:rows],
            "token_type_ids": batch.segments[:rows],
            "labels": labels.view_as(batch.ids)[:rows],
            "next_sentence_label": 1 - batch.follows[:rows].long(),  # HF's 0 is the real one
        }
        if not bool(real[:rows].all()):
            inputs["attention_mask"] = real[:rows].long()
        found.append((inputs, int(real.sum())))
    return found


def train_peer(
    build: Callable[[], Any], given: list[tuple[Inputs, int]], compiled: bool, device: torch.device, seconds: float
) -> dict[str, Any]:
    """Train the peer for that long after a warm-up."""
    torch.manual_seed(1)
    common.reset_peak(device)
    torch.compiler.reset()
    model = build().to(device).train()
    on_gpu = device.type == "cuda"
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=on_gpu)
    called: Any = torch.compile(model, dynamic=False) if compiled else model

    def step(inputs: Inputs) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss: Tensor = called(**inputs).loss
        torch.autograd.backward(loss)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss.detach()

    started = time.monotonic()
    for index in range(8 if on_gpu else 1):
        step(given[index % len(given)][0])
    common.wait(device)
    warm_up = time.monotonic() - started
    windows: list[float] = []
    steps, start = 0, time.monotonic()
    while time.monotonic() - start < seconds or not steps:
        tokens, begun = 0, time.monotonic()
        for _ in range(10 if on_gpu else 1):
            inputs, real = given[steps % len(given)]
            loss = step(inputs)
            tokens, steps = tokens + real, steps + 1
        common.wait(device)
        windows.append(tokens / (time.monotonic() - begun))
    elapsed = time.monotonic() - start
    places = sum(inputs["input_ids"].numel() for inputs, _ in given)
    return {
        "tokens_per_second": round(statistics.median(windows)),
        "windows": [round(each) for each in windows],
        "updates_per_second": round(steps / elapsed, 2),
        "padding": round(1 - sum(real for _, real in given) / places, 3),
        "parameters": common.trained_parameters(model),
        "precision": "bfloat16 autocast" if on_gpu else "float32",
        "warm_up_seconds": round(warm_up, 1),
        "seconds": round(elapsed, 2),
        "last_loss": round(float(loss), 3),
        "peak_memory_gib": common.peak_gib(device),
    }


def measure(arguments: argparse.Namespace, length: int, data: PreparedText, device: torch.device) -> dict[str, Any]:
    """Ours and the peers at one length."""
    assignments = [f'data.out="{arguments.data}"', f"train.max_minutes={arguments.seconds / 60:.4f}"]
    assignments += [f"train.device={device.type}", f"train.row_tokens={length}", f"model.preset={arguments.preset}"]
    assignments += ["train.clip_norm=1.0", "train.weight_decay=0.01"]
    assignments += [f"train.batch_tokens={arguments.batch_tokens}", f"train.log_every={arguments.log_every}"]
    assignments += [f"train.validate_every={arguments.validate_every}"]
    assignments += [f"train.checkpoint_every={arguments.checkpoint_every}"]
    assignments += [f"model.dropout={arguments.dropout}", f"model.attention_dropout={arguments.dropout}"]
    assignments += arguments.settings
    recipe = load_recipe(arguments.recipe, assignments)
    config = encoder_config(recipe, data.vocab_size)
    with torch.device("meta"):
        parameters = common.trained_parameters(EncoderForPreTraining(config))
    print(f"length {length}: macaron train for {arguments.seconds:.0f} s ...", flush=True)
    ours = train(arguments.recipe, assignments, arguments.seconds, recipe.train.checkpoint_every)
    result: dict[str, Any] = {"ratios": {}, "ours": {"parameters": parameters, **ours}, "peers": {}}
    given = peer_batches(data, recipe, device)
    for peer in arguments.peers:
        name = f"HF BERT, {peer}"
        print(f"length {length}: {name} ...", flush=True)
        try:
            found = train_peer(lambda: bert(config, length), given, peer == "compiled", device, arguments.peer_seconds)
            for kind in ("steady", "sustained"):
                result["ratios"][f"{kind} / {name}"] = round(
                    ours[f"{kind}_tokens_per_second"] / found["tokens_per_second"], 2
                )
        except Exception as error:  # the other peer is measured all the same
            found = {"error": common.failure(error)}
        result["peers"][name] = found
    return result


def show(result: dict[str, Any]) -> None:
    rows = []
    for length, found in result["lengths"].items():
        for kind in ("steady", "sustained"):
            speed = found["ours"][f"{kind}_tokens_per_second"]
            ratios = [number(found["ratios"].get(f"{kind} / {name}"), ".2f") for name in found["peers"]]
            memory = number(found["ours"].get("peak_memory_gib"), ".1f")
            rows.append(
                [f"{length}: macaron train, {result['preset']}, {kind}", number(speed), " ".join(ratios), memory]
            )
        for name, peer in found["peers"].items():
            label = f"{length}: {name}" + (f" ({peer['error'][:60]})" if "error" in peer else "")
            memory = number(peer.get("peak_memory_gib"), ".1f")
            rows.append([label, number(peer.get("tokens_per_second")), "", memory])
    common.print_table(["length: system", "real tokens/s", "ours / peers", "peak GiB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of documents that macaron prepare wrote")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/pretrain-mix.toml"))
    parser.add_argument("--preset", default="macaron-bert-base", help="of our model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512], help="tokens of the longest text")
    parser.add_argument("--batch-tokens", type=int, default=65_536, help="tokens in an update, ours and the peer's")
    parser.add_argument("--dropout", type=float, default=0.1, help="of all, in attention too")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=45, help="of macaron train, its start included")
    parser.add_argument("--peer-seconds", type=float, default=5, help="of each peer, after its warm-up")
    parser.add_argument("--peers", nargs="*", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--log-every", type=int, default=20, help="updates")
    parser.add_argument("--validate-every", type=int, default=200, help="updates")
    parser.add_argument("--checkpoint-every", type=int, default=2000, help="updates")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    arguments = parser.parse_args()

    device = common.choose_device(arguments.device)
    data = PreparedText.open(arguments.data)
    result: dict[str, Any] = {
        "ratios": {},
        "preset": arguments.preset,
        "dropout": arguments.dropout,
        "batch_tokens": arguments.batch_tokens,
        "lengths": {},
        "command": common.command(),
        "environment": common.environment(device),
    }
    for length in arguments.lengths:
        found = measure(arguments, length, data, device)
        result["lengths"][str(length)] = found
        result["ratios"][str(length)] = found["ratios"]
        common.write_json(arguments.out, result)
    show(result)


if __name__ == "__main__":
    main()
