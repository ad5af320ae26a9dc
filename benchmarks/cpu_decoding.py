"""Speed of beam search on the CPU: ours, CTranslate2 and transformers, side by side.

    pip install ctranslate2  # a peer; without it its rows are left out
    python benchmarks/cpu_decoding.py --out docs/results/cpu-decoding.json

As on a processor with AVX2 alone (each library has a variable of its own):

    export ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
    export FBGEMM_ENABLE_INSTRUCTIONS=AVX2 CT2_FORCE_CPU_ISA=AVX2
    python benchmarks/cpu_decoding.py --out docs/results/cpu-decoding-avx2.json

`macaron-small` against a Transformer of the same size, since CTranslate2 has no Macaron layer. The weights are random,
so the search is forced to exactly ``--tokens`` steps in every system. Every system has a process of its own, and the
processes take turns, ours and CTranslate2's one after the other. Numbers are medians over the turns, ratios are medians
of the ratios within a turn; a single sentence, whose time varies most, has three turns in a round. A run during which
other processes took more than 5 % of the cores is made again, ``--patience`` times at most.

CTranslate2 gets the weights of our `transformer-small`, and its hypotheses are compared with ours before anything is
measured: it is the same search over the same network. (Scores differ a little: where the end is forbidden CTranslate2
shares its probability among the other tokens.)
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cpu_systems import ctranslate2, ours, say, sentences, transformers

#: For each system the package it needs, and whether it is slow (and then measured in one round only).
SYSTEMS = {
    "ours float32": ("macaron", False),
    "ctranslate2 float32": ("ctranslate2", False),
    "ours int8": ("macaron", False),
    "ctranslate2 int8": ("ctranslate2", False),
    "ours, plain float32": ("macaron", False),
    "transformers float32": ("transformers", True),
}
#: What limits PyTorch's libraries and CTranslate2 to some instructions of the processor.
INSTRUCTIONS = (
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "MKL_ENABLE_INSTRUCTIONS",
    "FBGEMM_ENABLE_INSTRUCTIONS",
    "CT2_FORCE_CPU_ISA",
)
RATIOS = [
    ("ours float32", "ctranslate2 float32"),
    ("ours int8", "ctranslate2 int8"),
    ("ours int8", "ours float32"),
    ("ours float32", "ours, plain float32"),
    ("ours float32", "transformers float32"),
]


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
        for batch in [each for each in options.batches for _ in range(3 if each == 1 else 1)]:
            for name, worker in workers.items():
                slow = SYSTEMS[name][1]
                if slow and turn and seconds[batch][name]:
                    continue
                took = worker.measure(batch, 1 if batch > 1 or slow else 5, options.patience)
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
            "environment": {name: os.environ[name] for name in INSTRUCTIONS if name in os.environ},
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
