"""Decoding speed: a trained model in float32 and bfloat16, HF Marian and CTranslate2 on the same sources, in one run.

    python benchmarks/gpu_decoding.py runs/deen-mix data/prepared/deen-mix --out docs/results/gpu-decoding.json

Ours is `Translator`, text to text, tokenisation included, beam 5.

- cold: the whole split as the first thing that a new process with an empty compile cache does after loading
- first: the first sentences that a loaded model translates
- warm-up: the other split (test: valid), so that memory has been taken and kernels have been loaded, as in a server
- warm: the whole split after that; the first such pass is the number, more are made to see how it varies

The peers have our model's shape and random weights, so they would not stop where a trained model does: they make
exactly as many tokens for a batch as ours did on average for its sentences. They get token ids and give token ids, in
batches of like length, in bfloat16. Where their time does not suffice, the rest is extrapolated by their tokens.
"""

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
from common import Shape, number

from macaron.data.prepared import PreparedData, Split
from macaron.decode.settings import Hypothesis
from macaron.decode.translator import Translator
from macaron.evaluate.evaluation import evaluate_split
from macaron.text.vocabulary import PAD

BEAM = 5
COLD = """
import json, sys, time
from macaron.data.prepared import PreparedData
from macaron.decode.translator import Translator

model, folder, split, device, dtype, beam = sys.argv[1:]
data = PreparedData.open(folder)
lines, state = data.text(split, data.source_lang), data.text_state(split)
translator = Translator(model, device=device, dtype=dtype)
start = time.monotonic()
translator.translate(lines, beam=int(beam), state=state, one_per_line=True)
print(json.dumps({"seconds": round(time.monotonic() - start, 2)}))
"""
#: What CTranslate2 computes in; it has no bfloat16 on a CPU.
KIND = {"cuda": "bfloat16", "cpu": "float32"}
#: A batch of a peer, sources with their end, and how many tokens to make of each.
PeerBatch = tuple[list[list[int]], int]


# Ours.


class TimedTranslator(Translator):
    """A Translator that takes the time of every call and keeps what it found."""

    seconds = 0.0
    found: list[Hypothesis]

    def translate_nbest(self, lines: Any, **options: Any) -> list[list[Hypothesis]]:
        device = self.model.device
        common.wait(device)
        start = time.monotonic()
        best = super().translate_nbest(lines, **options)
        common.wait(device)
        self.seconds = time.monotonic() - start
        self.found = [each[0] for each in best]
        return best


def decode(
    model: Path, data: PreparedData, split: Split, dtype: str, device: torch.device, first_lines: int, repeat: int
) -> tuple[dict[str, Any], TimedTranslator]:
    """Load, warm up, translate a split and score it."""
    common.reset_peak(device)
    start = time.monotonic()
    translator = TimedTranslator(model, device=device, dtype=dtype)
    common.wait(device)
    loading = round(time.monotonic() - start, 2)
    lines, state = data.text(split, data.source_lang), data.text_state(split)
    # Lines from everywhere, so that all lengths occur.
    some = lines[:: max(1, len(lines) // first_lines)][:first_lines]
    translator.translate(some, beam=BEAM, state=state, one_per_line=True)
    first = {"sentences": len(some), "seconds": round(translator.seconds, 3)}
    other: Split = "valid" if split == "test" else "test"
    warmed = None
    if other in data.splits:
        translator.translate(
            data.text(other, data.source_lang), beam=BEAM, state=data.text_state(other), one_per_line=True
        )
        warmed = {"split": other, "sentences": len(translator.found), "seconds": round(translator.seconds, 3)}
    scored = evaluate_split(translator, data, split, beam=BEAM)
    passes = [translator.seconds]
    while len(passes) < repeat and sum(passes) < 6:
        translator.translate(lines, beam=BEAM, state=state, one_per_line=True)
        passes.append(translator.seconds)
    tokens = sum(len(each.tokens) for each in translator.found)
    result = {
        "sentences_per_second": round(len(lines) / passes[0], 1),
        "seconds": round(passes[0], 3),
        "passes_seconds": [round(seconds, 3) for seconds in passes],
        "loading_seconds": loading,
        "first": first,
        "warm_up": warmed,
        "sentences": len(lines),
        "tokens": tokens,
        "tokens_per_second": round(tokens / passes[0]),
        "scores": {score.definition: round(score.score, 3) for score in scored.scores},
        "peak_memory_gib": common.peak_gib(device),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    return result, translator


def cold(model: Path, data: PreparedData, split: Split, dtype: str, device: torch.device) -> dict[str, Any]:
    """A new process, from nothing to the last line."""
    options = [str(model), str(data.folder), split, device.type, dtype, str(BEAM)]
    with tempfile.TemporaryDirectory(prefix="macaron-benchmark-") as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        start = time.monotonic()
        arguments, variables = [sys.executable, "-c", COLD, *options], os.environ | caches
        done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
    if done.returncode:
        return {"error": done.stderr[-1000:]}
    return {"process_seconds": round(seconds, 2), **json.loads(done.stdout.splitlines()[-1])}


# The peers.


def peer_batches(data: PreparedData, split: Split, found: list[Hypothesis], size: int) -> list[PeerBatch]:
    """Sentences of like length; as many tokens to make as ours made on average."""
    pairs = data.pairs(split)
    sources = [pairs.source[i].tolist() for i in range(len(pairs))]
    order = sorted((i for i in range(len(sources)) if len(sources[i]) > 1), key=lambda i: -len(sources[i]))
    batches = []
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        mean = sum(len(found[i].tokens) for i in numbers) / len(numbers)
        batches.append(([sources[i] for i in numbers], max(1, round(mean))))
    # In random order: if the time does not suffice for all, those that were done stand for the others.
    random.Random(1).shuffle(batches)
    return batches


def time_peer(
    run: Callable[[PeerBatch], None], batches: list[PeerBatch], device: torch.device, seconds: float
) -> dict[str, Any]:
    """Speed of a peer after a warm-up with one batch."""
    common.reset_peak(device)
    run(batches[-1])
    common.wait(device)
    done = 0
    start = time.monotonic()
    while done < len(batches) and (not done or time.monotonic() - start < seconds):
        run(batches[done])
        common.wait(device)
        done += 1
    elapsed = time.monotonic() - start
    tokens, made = (sum(len(s) * steps for s, steps in some) for some in (batches, batches[:done]))
    total = elapsed * tokens / made
    sentences = sum(len(sources) for sources, _ in batches)
    return {
        "sentences_per_second": round(sentences / total, 1),
        "seconds": round(total, 3),
        "extrapolated": done < len(batches),
        "batches_measured": done,
        "batches": len(batches),
        "seconds_measured": round(elapsed, 3),
        "tokens": tokens,
        "tokens_per_second": round(tokens / total),
        "peak_memory_gib": common.peak_gib(device),
    }


def marian_peer(shape: Shape, batches: list[PeerBatch], device: torch.device, seconds: float) -> dict[str, Any]:
    model = common.marian(shape).to(device, torch.bfloat16).eval()

    def run(batch: PeerBatch) -> None:
        sources, steps = batch
        width = max(map(len, sources))
        ids = torch.tensor([source + [PAD] * (width - len(source)) for source in sources], device=device)
        with torch.inference_mode():
            made = model.generate(
                ids,
                attention_mask=(ids != PAD).long(),
                num_beams=BEAM,
                do_sample=False,
                min_new_tokens=steps,
                max_new_tokens=steps,
            )
        assert made.shape[1] == steps + 1, f"{made.shape[1]} tokens instead of {steps} and the start"

    return {**time_peer(run, batches, device, seconds), "parameters": common.trained_parameters(model)}


def ctranslate2_peer(shape: Shape, batches: list[PeerBatch], device: torch.device, seconds: float) -> dict[str, Any]:
    model = common.marian(shape)
    peer, names = common.ctranslate2_marian(model, device, KIND[device.type])

    def run(batch: PeerBatch) -> None:
        sources, steps = batch
        tokens = [[names[min(i, len(names) - 1)] for i in source] for source in sources]
        made = peer.translate_batch(tokens, beam_size=BEAM, min_decoding_length=steps, max_decoding_length=steps)
        assert all(len(each.hypotheses[0]) == steps for each in made), f"not {steps} tokens each"

    found = {**time_peer(run, batches, device, seconds), "parameters": common.trained_parameters(model)}
    return found | {"peak_memory_gib": None}  # its memory is not PyTorch's


def peers(device: torch.device, size: int) -> dict[str, Callable[..., dict[str, Any]]]:
    found: dict[str, Callable[..., dict[str, Any]]] = {f"HF Marian, bfloat16, batch {size}": marian_peer}
    if importlib.util.find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed, and left out")
    else:
        found[f"CTranslate2, {KIND[device.type]}, batch {size}"] = ctranslate2_peer
    return found


def ratio(ours: dict[str, Any], other: dict[str, Any]) -> float:
    return round(ours["sentences_per_second"] / other["sentences_per_second"], 2)


def show(result: dict[str, Any], best: str) -> None:
    rows = []
    for name, system in {**result["ours"], **result["peers"]}.items():
        label = f"macaron, {name}" if name in result["ours"] else name
        label += " (extrapolated)" if system.get("extrapolated") else ""
        label += f" ({system['error'][:60]})" if "error" in system else ""
        scores = system.get("scores", {})
        bleu = next((score for what, score in scores.items() if what.startswith("tokenised BLEU")), None)
        speed = [number(system.get("sentences_per_second"), ",.1f"), number(system.get("seconds"), ".2f")]
        rest = [number(bleu, ".2f"), number(system.get("peak_memory_gib"), ".2f")]
        rows.append([label, number(result["ratios"].get(name), ".2f"), *speed, *rest])
    headers = ["sentences/s", "seconds", "tokenised BLEU", "peak GiB"]
    common.print_table(["system", f"ours ({best}) / it", *headers], rows)
    if result["identical"] is not None:
        print(f"{100 * result['identical']:.2f} % of the translations in {best} are those in float32.")
    for dtype, system in result["cold"].items():
        took = "{seconds} s after loading, {process_seconds} s the whole process" if "seconds" in system else "{error}"
        print(f"Cold, {dtype}: {took.format(**system)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the folder of a run, or of a model")
    parser.add_argument("data", type=Path, help="a folder that macaron prepare wrote")
    parser.add_argument("--split", choices=["valid", "test"], default="test")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--cold", nargs="*", default=["bfloat16"], help="formats to time in a new process, too")
    parser.add_argument("--first", type=int, default=512, help="sentences that are translated and timed first")
    parser.add_argument("--repeat", type=int, default=3, help="passes at most; only the first counts")
    parser.add_argument("--peer-batch", type=int, default=512, help="sentences in a batch of a peer")
    parser.add_argument("--peer-seconds", type=float, default=10, help="of each peer, after its warm-up")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True, help="where to write the numbers as JSON")
    arguments = parser.parse_args()

    data, split = PreparedData.open(arguments.data), arguments.split
    device = common.choose_device(arguments.device)
    result: dict[str, Any] = {"ratios": {}, "identical": None, "ours": {}, "peers": {}, "cold": {}}
    result |= {"split": split, "beam": BEAM, "command": common.command()}
    for dtype in arguments.cold:
        print(f"macaron, {dtype}, cold ...", flush=True)
        result["cold"][dtype] = cold(arguments.model, data, split, dtype, device)
    result["environment"] = common.environment(device)
    common.write_json(arguments.out, result)

    found: dict[str, list[Hypothesis]] = {}
    for dtype in arguments.dtypes:
        print(f"macaron, {dtype} ...", flush=True)
        options = (device, arguments.first, arguments.repeat)
        result["ours"][dtype], translator = decode(arguments.model, data, split, dtype, *options)
        found[dtype] = translator.found
        result["shape"] = (shape := Shape.of(translator.model.config)).to_dict()
        del translator  # its memory is not the next one's
        common.write_json(arguments.out, result)
    best = arguments.dtypes[-1]
    if "float32" in found and best != "float32":
        same = [a.tokens == b.tokens for a, b in zip(found["float32"], found[best], strict=True)]
        result["identical"] = round(sum(same) / len(same), 5)
    ours = result["ours"]
    result["ratios"] = {name: ratio(ours[best], ours[name]) for name in ours if name != best}
    batches = peer_batches(data, split, found[best], arguments.peer_batch)
    for name, peer in peers(device, arguments.peer_batch).items():
        print(f"{name} ...", flush=True)
        try:
            system = peer(shape, batches, device, arguments.peer_seconds)
            result["ratios"][name] = ratio(ours[best], system)
        except Exception as error:
            system = {"error": common.failure(error)}
        result["peers"][name] = system
        common.write_json(arguments.out, result)
    show(result, best)


if __name__ == "__main__":
    main()
