"""Speed of beam search on the CPU: ours, CTranslate2 and transformers, side by side.

    pip install ctranslate2  # a peer; without it its rows are left out
    python benchmarks/cpu_decoding.py --out docs/results/cpu-decoding.json

`macaron-small` against a Transformer of the same size, since CTranslate2 has no Macaron layer. The weights are random,
so the search is forced to exactly ``--tokens`` steps in every system. Every system has a process of its own, and the
processes take turns. Numbers are medians over the rounds, ratios are medians of the ratios within a round. A run
during which other processes took more than 5 % of the cores is made again, ``--patience`` times at most.

CTranslate2 gets the weights of our `transformer-small`, and its hypotheses are compared with ours before anything is
measured: it is the same search over the same network. (Scores differ a little: where the end is forbidden CTranslate2
shares its probability among the other tokens.)
"""

import argparse
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Run = Callable[[list[list[int]]], list[list[int]]]

END = 2
FIRST_WORD = 4
#: For each system the package it needs, and whether it is slow (and then measured in one round only).
SYSTEMS = {
    "ours float32": ("macaron", False),
    "ours int8": ("macaron", False),
    "ours, plain float32": ("macaron", False),
    "ctranslate2 float32": ("ctranslate2", False),
    "ctranslate2 int8": ("ctranslate2", False),
    "transformers float32": ("transformers", True),
}
RATIOS = [
    ("ours float32", "ctranslate2 float32"),
    ("ours int8", "ctranslate2 int8"),
    ("ours float32", "ours, plain float32"),
    ("ours float32", "transformers float32"),
]


def sentences(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    """Random sources of so many tokens, the end included."""
    generator = random.Random(1)
    return [[*(generator.randrange(FIRST_WORD, vocabulary) for _ in range(tokens - 1)), END] for _ in range(count)]


def random_model(preset_name: str, vocabulary: int) -> Any:
    """A model with random weights, large enough that the next token matters."""
    import torch

    from macaron.models import TranslationModel, preset

    torch.manual_seed(1)
    return TranslationModel(preset(preset_name, vocab_size=vocabulary)).eval()


def ours(options: argparse.Namespace, kind: str) -> Run:
    import torch

    from macaron.decode import SearchSettings, translate_ids
    from macaron.decode.packed import packed

    torch.set_num_threads(options.threads)
    model = random_model(options.preset, options.vocabulary)
    # The end is one of the tokens: the search takes one step more than max_length.
    settings = SearchSettings(beam=options.beam, min_length=options.tokens - 1, max_length=options.tokens - 1)
    if "plain" not in kind:
        model = packed(model, int8="int8" in kind)
    return lambda sources: [list(best[0].tokens) for best in translate_ids(model, sources, settings)]


def ctranslate2(options: argparse.Namespace, kind: str) -> Run:
    import ctranslate2
    import torch

    torch.set_num_threads(options.threads)
    model = random_model(options.preset.replace("macaron", "transformer"), options.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        to_ctranslate2(model, folder)
        translator = ctranslate2.Translator(
            folder, "cpu", compute_type=kind, inter_threads=1, intra_threads=options.threads
        )

    def run(sources: list[list[int]]) -> list[list[int]]:
        results = translator.translate_batch(
            [[str(token) for token in source] for source in sources],
            beam_size=options.beam,
            min_decoding_length=options.tokens,
            max_decoding_length=options.tokens,
            max_batch_size=0,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    agree(model, translator, options)
    return run


def to_ctranslate2(model: Any, folder: str) -> None:
    """Write a pre-norm Transformer of ours as a CTranslate2 model."""
    import numpy as np
    import torch
    from ctranslate2.specs import TransformerSpec

    from macaron.nn.embedding import FIRST_POSITION, sinusoids

    def linear(spec: Any, layer: Any) -> None:
        spec.weight, spec.bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()

    def norm(spec: Any, layer: Any) -> None:
        spec.gamma, spec.beta = layer.weight.detach().numpy(), layer.bias.detach().numpy()

    config = model.config
    spec = TransformerSpec.from_config((config.encoder_layers, config.decoder_layers), config.num_attention_heads)
    table = model.embedding.tokens.weight.detach().numpy()
    positions = sinusoids(torch.arange(FIRST_POSITION, FIRST_POSITION + 512), config.hidden_size).numpy()
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        (side.embeddings[0] if side is spec.encoder else side.embeddings).weight = table
        side.position_encodings.encodings = positions
        norm(side.layer_norm, stack.norm)
        for part, layer in zip(side.layer, stack.layers, strict=True):
            attention, feedforward = layer.sublayers["F1"], layer.sublayers["G1"]
            norm(part.self_attention.layer_norm, attention.norm)
            linear(part.self_attention.linear[0], attention.operator.qkv)
            linear(part.self_attention.linear[1], attention.operator.out)
            norm(part.ffn.layer_norm, feedforward.norm)
            linear(part.ffn.linear_0, feedforward.operator.fc1)
            linear(part.ffn.linear_1, feedforward.operator.fc2)
            if side is spec.decoder:
                cross = layer.sublayers["H1"]
                norm(part.attention.layer_norm, cross.norm)
                for place, name in enumerate(("q", "kv", "out")):
                    linear(part.attention.linear[place], getattr(cross.operator, name))
    spec.decoder.projection.weight = table
    spec.decoder.projection.bias = np.zeros(len(table), np.float32)
    words = [str(token) for token in range(len(table))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.eos_token = str(END)
    spec.config.unk_token = "3"
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    spec.save(folder)


def agree(model: Any, translator: Any, options: argparse.Namespace) -> None:
    """Compare CTranslate2's scores with ours on the same weights; both search with so many beams and steps."""
    from macaron.decode import SearchSettings, translate_ids

    sources = sentences(4, options.tokens, options.vocabulary)
    # CTranslate2 stops after so many tokens, ours writes the end after them.
    settings = SearchSettings(
        beam=options.beam, min_length=options.tokens, max_length=options.tokens, length_penalty=0.0
    )
    theirs = translator.translate_batch(
        [[str(token) for token in source] for source in sources],
        beam_size=options.beam,
        num_hypotheses=options.beam,
        min_decoding_length=options.tokens,
        max_decoding_length=options.tokens,
        length_penalty=0.0,
        return_scores=True,
    )
    gaps, same = [], 0
    for best, result in zip(translate_ids(model, sources, settings), theirs, strict=True):
        if {len(each) for each in result.hypotheses} != {options.tokens} or len(result.hypotheses) != options.beam:
            sys.exit(f"CTranslate2 did not search as asked: {[len(each) for each in result.hypotheses]} tokens")
        found = {each.tokens[:-1]: sum(each.token_scores[:-1]) for each in best}
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            key = tuple(int(token) for token in tokens)
            if key in found:
                same += 1
                gaps.append(abs(found[key] - score))
    say({"agree": f"{same} of {options.beam * len(sources)} hypotheses, scores differ by {max(gaps, default=0.0):.2g}"})


def transformers(options: argparse.Namespace, kind: str) -> Run:
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    own = random_model(options.preset.replace("macaron", "transformer"), 8).config
    config = MarianConfig(
        vocab_size=options.vocabulary,
        d_model=own.hidden_size,
        encoder_layers=own.encoder_layers,
        decoder_layers=own.decoder_layers,
        encoder_attention_heads=own.num_attention_heads,
        decoder_attention_heads=own.num_attention_heads,
        encoder_ffn_dim=own.intermediate_size,
        decoder_ffn_dim=own.intermediate_size,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=1,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=END,
    )
    model = MarianMTModel(config).eval()
    length = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    def run(sources: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(sources)
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=options.beam, early_stopping=True, **length
        )
        return made[:, 1:].tolist()

    return run


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def work(name: str, options: argparse.Namespace) -> None:
    """The process of one system: build it, then translate so many sentences for every line of input."""
    system, kind = name.split(maxsplit=1)
    build = {"ours": ours, "ours,": ours, "ctranslate2": ctranslate2, "transformers": transformers}[system]
    start = time.perf_counter()
    run = build(options, kind)
    say({"ready": round(time.perf_counter() - start, 2)})
    for line in sys.stdin:
        batch, times = json.loads(line)
        sources = sentences(batch, options.tokens, options.vocabulary)
        others, start = other_processes(), time.perf_counter()
        for _ in range(times):
            made = run(sources)
        seconds = time.perf_counter() - start
        disturbed = (other_processes() - others) / (seconds * len(os.sched_getaffinity(0)))
        if {len(each) for each in made} != {options.tokens}:
            sys.exit(f"{name} made translations of {sorted({len(each) for each in made})} tokens")
        say({"seconds": seconds / times, "disturbed": disturbed})


def other_processes() -> float:
    """CPU seconds that all processes but this one have used."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    busy = sum(fields) - fields[3] - fields[4]  # less idle and waiting
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


class Worker:
    """The process of one system, seen from the parent."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        command = [sys.executable, __file__, *arguments, "--worker", name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about: dict[str, Any] = {}
        self.worst = 0.0
        while "ready" not in self.about:
            self.about |= self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args} ended: see above")
        return json.loads(line)  # type: ignore[no-any-return]

    def measure(self, batch: int, times: int, patience: int) -> float:
        """Seconds of one run; where all attempts were disturbed, those of the least disturbed."""
        assert self.process.stdin is not None
        attempts: list[tuple[float, float]] = []
        while len(attempts) <= patience and min(attempts, default=(1.0,))[0] > 0.05:
            time.sleep(2.0 if attempts else 0.2)
            self.process.stdin.write(json.dumps([batch, times]) + "\n")
            self.process.stdin.flush()
            answer = self.read()
            attempts.append((answer["disturbed"], answer["seconds"]))
        self.worst = max(self.worst, min(attempts)[0])
        return min(attempts)[1]

    def close(self) -> None:
        self.process.communicate("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="macaron-small", help="ours; theirs is the Transformer of that size")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=24, help="in and out, the end included")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--patience", type=int, default=10, help="attempts to measure undisturbed")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options)
        return

    workers: dict[str, Worker] = {}
    for name in options.systems:
        package, _ = SYSTEMS[name]
        if importlib.util.find_spec(package) is None:
            print(f"{name}: left out, {package} is not installed (pip install {package})")
            continue
        workers[name] = Worker(name, sys.argv[1:])
        print(f"{name}: ready, {workers[name].about}", flush=True)
    seconds: dict[int, dict[str, list[float]]] = {batch: {name: [] for name in workers} for batch in options.batches}
    for turn in range(options.rounds + 1):  # the first is to warm up
        for batch in options.batches:
            for name, worker in workers.items():
                if turn > 1 and SYSTEMS[name][1]:
                    continue
                took = worker.measure(batch, 1 if batch > 1 or SYSTEMS[name][1] else 5, options.patience)
                if turn:
                    seconds[batch][name].append(took)
        print(f"round {turn} of {options.rounds} is done", flush=True)
    for worker in workers.values():
        worker.close()
    report(options, workers, seconds)


def report(options: argparse.Namespace, workers: dict[str, Worker], seconds: dict[int, dict[str, list[float]]]) -> None:
    """Print ratios, then times, and write the JSON."""
    ratios: dict[str, dict[str, float]] = {}
    for mine, theirs in RATIOS:
        if mine in workers and theirs in workers:
            ratios[f"{mine} / {theirs}"] = {
                str(batch): round(statistics.median(b / a for a, b in zip(of[mine], of[theirs], strict=False)), 3)
                for batch, of in seconds.items()
            }
    print(f"\n{'speed, ratio':45}" + "".join(f"{f'batch {batch}':>12}" for batch in seconds))
    for name, by_batch in ratios.items():
        print(f"{name:45}" + "".join(f"{by_batch[str(batch)]:12.2f}" for batch in seconds))
    print(f"\n{'sentences/s (ms)':25}" + "".join(f"{f'batch {batch}':>20}" for batch in seconds))
    table: dict[str, Any] = {}
    for name in workers:
        cells = []
        for batch, of in seconds.items():
            middle = statistics.median(of[name])
            cells.append(f"{batch / middle:12.2f} ({1000 * middle:5.0f})")
            table.setdefault(name, {})[str(batch)] = {
                "sentences_per_second": round(batch / middle, 3),
                "median_seconds": round(middle, 5),
                "seconds": [round(each, 5) for each in of[name]],
            }
        print(f"{name:25}" + "".join(cells))
    if options.out:
        packages = ["torch", *sorted({SYSTEMS[name][0] for name in workers} - {"macaron"})]
        result = {
            "command": f"python benchmarks/cpu_decoding.py {' '.join(sys.argv[1:])}".strip(),
            "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
            "python": platform.python_version(),
            "versions": {package: version(package) for package in packages},
            "setting": {
                key: getattr(options, key) for key in ("preset", "vocabulary", "tokens", "beam", "threads", "rounds")
            },
            "ratios": ratios,
            "systems": {
                name: {**worker.about, "most_disturbed": round(worker.worst, 3), "batches": table[name]}
                for name, worker in workers.items()
            },
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
