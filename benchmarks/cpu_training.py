"""Speed of training on the CPU: ours and transformers' Marian of equal size, side by side.

    python benchmarks/cpu_training.py --out docs/results/cpu-training.json
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 python benchmarks/cpu_training.py ...

The pairs are random tokens with lengths like those of talks. Both systems take the same padded batches in the same
order, with dropout, label smoothing, clipping and AdamW: ours with the step and the optimiser of `macaron train`,
Marian eagerly with PyTorch's own, fused as its Trainer has it. Every system has a process of its own, and the processes
take turns of so many updates. Ratios are medians of the ratios within a turn. Only real target tokens count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SYSTEMS = ["ours float32", "marian float32", "ours bfloat16", "marian bfloat16"]
#: What limits PyTorch's libraries to some instructions of the processor.
INSTRUCTIONS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
PAIRS, WARM_UP = 6000, 2


def batches(options: argparse.Namespace) -> list[tuple[Any, int]]:
    """Padded batches of random pairs, each with its number of targets."""
    import numpy as np
    import torch

    from macaron.data.batching import bucket, epoch_order
    from macaron.tasks.translation import TranslationBatch
    from macaron.text.vocabulary import EOS, PAD

    random = np.random.default_rng(1)
    source = np.clip(np.exp(random.normal(2.95, 0.55, PAIRS)), 3, 100).astype(np.int64)
    target = np.clip(source * random.normal(1, 0.15, PAIRS) + random.normal(0, 1.5, PAIRS), 3, 110).astype(np.int64)

    def padded(lengths: Any) -> Any:
        ids = torch.from_numpy(random.integers(4, options.vocabulary, (len(lengths), int(lengths.max()))))
        ends = torch.from_numpy(lengths)[:, None] - 1
        columns = torch.arange(ids.shape[1])
        return ids.masked_fill(columns == ends, EOS).masked_fill(columns > ends, PAD)

    found = bucket(source, target, options.batch_tokens, 1)
    made = []
    for number in epoch_order(len(found), 1, 1)[: WARM_UP + options.rounds * options.updates]:
        rows, wanted = padded(source[found[number]]), padded(target[found[number]])
        previous = torch.roll(wanted, 1, dims=1)
        previous[:, 0] = EOS
        made.append((TranslationBatch(rows, wanted, previous), int(target[found[number]].sum())))
    return made


def system(name: str, options: argparse.Namespace) -> tuple[Callable[[Any, int], float], int]:
    """An update of a batch with so many targets, which returns its loss, and the number of parameters."""
    import common
    import torch
    import torch.nn.functional as F

    from macaron.device import keep_freed_memory
    from macaron.models import TranslationModel, preset
    from macaron.tasks.translation import TranslationLoss
    from macaron.text.vocabulary import PAD
    from macaron.train.optimiser import Optimiser
    from macaron.train.settings import TrainSettings
    from macaron.train.step import TrainStep, precision

    size = {"hidden_size": options.hidden_size, "intermediate_size": 4 * options.hidden_size}
    size |= {"encoder_layers": options.layers, "decoder_layers": options.layers, "vocab_size": options.vocabulary}
    config: Any = preset("macaron-tiny", **size)
    half = name.endswith("bfloat16")
    torch.manual_seed(1)
    if name.startswith("ours"):
        keep_freed_memory()  # as `macaron train` does
        module = TranslationLoss(TranslationModel(config), 0.1).train()
        own = Optimiser(module, TrainSettings(max_updates=1, clip_norm=1.0, weight_decay=0.01))
        step = TrainStep(module, partial(precision, torch.device("cpu"), half))
        done: list[None] = []

        def update(batch: Any, targets: int) -> float:
            torch.manual_seed(len(done))
            losses = step(batch, 1 / targets)
            own.step(1e-4, len(done))
            done.append(None)
            return float(losses[0]) / targets

        return update, common.trained_parameters(module)
    model = common.marian(common.Shape.of(config)).train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def update_peer(batch: Any, targets: int) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            real = (batch.source != PAD).long()
            logits = model(
                input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.previous, use_cache=False
            ).logits
            goal = batch.target.flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), goal, ignore_index=PAD, label_smoothing=0.1)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return float(loss.detach())

    return update_peer, common.trained_parameters(model)


def work(name: str, options: argparse.Namespace) -> None:
    """The process of one system: so many updates for every line of input."""
    import resource

    import torch

    torch.set_num_threads(options.threads)
    given = batches(options)
    update, parameters = system(name, options)
    losses = [update(*each) for each in given[:WARM_UP]]
    targets = statistics.mean(count for _, count in given)
    about = {"parameters": parameters, "targets_per_update": round(targets), "torch": torch.__version__}
    print(json.dumps({**about, "cpu": torch.backends.cpu.get_cpu_capability()}), flush=True)
    for turn, _ in enumerate(sys.stdin):
        part = given[WARM_UP + turn * options.updates :][: options.updates]
        start, used = time.perf_counter(), time.process_time()
        losses += [update(*each) for each in part]
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
        tokens, peak = sum(count for _, count in part), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = {"tokens_per_second": tokens / seconds, "cpu_seconds": cpu, "seconds": seconds}
        print(json.dumps({**result, "loss": losses[-1], "peak_mib": peak // 1024}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3, help="of the encoder, and of the decoder")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--updates", type=int, default=6, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS[:2])
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options)
        return
    from cpu_decoding import processor

    machine = f"{processor()}, {len(os.sched_getaffinity(0))} cores"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    found: dict[str, Any] = {}
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    workers = {name: subprocess.Popen([*command, name], **pipes) for name in options.systems}
    import common  # and PyTorch: with OMP_PROC_BIND, processes that start later would share one core

    for name, worker in workers.items():
        found[name] = json.loads(worker.stdout.readline()) | {"turns": []}
        print(name, found[name], flush=True)
    for _ in range(options.rounds):
        for name, worker in workers.items():
            worker.stdin.write("\n")
            worker.stdin.flush()
            found[name]["turns"].append(json.loads(worker.stdout.readline()))
            print(name, found[name]["turns"][-1], flush=True)
    for worker in workers.values():
        worker.communicate("")
    speeds = {name: [turn["tokens_per_second"] for turn in each["turns"]] for name, each in found.items()}
    pairs = [(mine, theirs) for mine, theirs in zip(SYSTEMS[::2], SYSTEMS[1::2], strict=True)]
    pairs += [("ours bfloat16", "ours float32")]
    ratios = {
        f"{mine} / {theirs}": round(statistics.median(a / b for a, b in zip(*both, strict=True)), 3)
        for mine, theirs in pairs
        if len(both := [speeds[name] for name in (mine, theirs) if name in speeds]) == 2
    }
    rows = [[name, f"{statistics.median(each):,.0f}"] for name, each in speeds.items()]
    common.print_table(["", "target tokens/s"], rows)
    common.print_table(["", "speed, ratio"], [[name, f"{ratio:.2f}"] for name, ratio in ratios.items()])
    if options.out:
        setting = {key: value for key, value in vars(options).items() if key not in ("out", "worker", "systems")}
        told = {key: os.environ[key] for key in INSTRUCTIONS if key in os.environ}
        result = {"command": common.command(), "environment": told, "machine": machine, "setting": setting}
        common.write_json(options.out, {**result, "ratios": ratios, "systems": found})


if __name__ == "__main__":
    main()
