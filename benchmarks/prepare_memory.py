"""Peak memory and time of ``macaron prepare`` on a generated corpus.

    python benchmarks/prepare_memory.py --pairs 5000000 --out docs/results/prepare-memory.json

The corpus has a long tail, as text has: words are drawn by Zipf's law, and every word type occurs at least once.
Memory is the resident set of the command and all its processes added up, looked at 20 times a second (shared pages are
counted once for every process, so the true sum is smaller).
"""

import argparse
import itertools
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ONSETS = [
    "b",
    "bl",
    "br",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "kl",
    "kr",
    "l",
    "m",
    "n",
    "p",
    "pf",
    "pr",
    "qu",
    "r",
    "s",
    "sch",
    "schl",
    "sp",
    "st",
    "str",
    "t",
    "tr",
    "v",
    "w",
    "z",
]
VOWELS = ["a", "e", "i", "o", "u", "ä", "ö", "ü", "ei", "au", "eu", "ie"]
CODAS = ["", "n", "r", "l", "s", "t", "ch", "m", "ng", "nd"]
BLOCK = 100_000


def words(count: int, ending: str) -> list[str]:
    """So many different words, short ones first."""
    syllables = ["".join(parts) for parts in itertools.product(ONSETS, VOWELS, CODAS)]
    generator = np.random.default_rng(len(ending))
    generator.shuffle(syllables)
    pairs = itertools.product(syllables, repeat=2)
    return [a + b + ending for a, b in itertools.islice(itertools.chain(((s, "") for s in syllables), pairs), count)]


def generate(folder: Path, pairs: int, types: int) -> dict[str, int]:
    """Write train.de and train.en; return how many different words occur in each."""
    found = {}
    for seed, (language, ending) in enumerate((("de", ""), ("en", "e"))):
        vocabulary = np.array(words(types, ending), dtype=object)
        order = np.random.default_rng(seed).permutation(types)  # which word has which rank
        seen = np.zeros(types, bool)
        generator = np.random.default_rng(100 + seed)
        lengths_generator = np.random.default_rng(7)  # the same lengths on both sides, so that no ratio is odd
        with (folder / f"train.{language}").open("w", encoding="utf-8") as file:
            for start in range(0, pairs, BLOCK):
                size = min(BLOCK, pairs - start)
                lengths = lengths_generator.integers(6, 17, size)
                ranks = generator.zipf(1.2, int(lengths.sum())) % types
                ends = np.cumsum(lengths)
                # The first word of every line goes through all types in turn: each of them occurs.
                ranks[ends - lengths] = (start + np.arange(size)) % types
                indices = order[ranks]
                seen[indices] = True
                chosen = vocabulary[indices]
                begin = 0
                for end in ends.tolist():
                    file.write(" ".join(chosen[begin:end]) + ".\n")
                    begin = end
        found[language] = int(seen.sum())
    return found


def resident(root: int) -> tuple[int, int]:
    """Bytes in memory of a process and its descendants, and their number."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                content = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(content.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    total, count, waiting = 0, 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            count += 1
        except OSError:
            continue
    return total, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--types", type=int, default=600_000, help="word types of each language")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, help="where to put the corpus (1 GB for 5 million pairs)")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="macaron-prepare-", dir=arguments.folder))
    try:
        start = time.monotonic()
        types = generate(folder, arguments.pairs, arguments.types)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"generated {arguments.pairs:,} pairs, {size / 1e6:,.0f} MB, {types} word types", end=" ", flush=True)
        print(f"in {time.monotonic() - start:.0f} s", flush=True)
        options = ["--source-lang", "de", "--target-lang", "en", "--train", str(folder / "train")]
        options += ["--out", str(folder / "prepared"), "--vocab-size", str(arguments.vocab_size)]
        options += ["--workers", str(arguments.workers)]
        start = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "macaron", "prepare", *options])
        peak = most = 0
        while process.poll() is None:
            total, count = resident(process.pid)
            peak, most = max(peak, total), max(most, count)
            time.sleep(0.05)
        seconds = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            sys.exit(f"macaron prepare failed with {process.returncode}")
        manifest = json.loads((folder / "prepared" / "prepared.json").read_text(encoding="utf-8"))
        result = {
            "command": f"python benchmarks/prepare_memory.py {' '.join(sys.argv[1:])}".strip(),
            "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "python": platform.python_version(),
            "pairs": arguments.pairs,
            "corpus_bytes": size,
            "word_types": types,
            "vocab_size": manifest["vocab_size"],
            "workers": arguments.workers,
            "processes": most,
            "peak_resident_bytes": peak,
            "peak_resident_gib": round(peak / 2**30, 3),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "pairs_per_second": round(arguments.pairs / seconds),
            "subwords": manifest["subwords"],
            "cleaning": {key: value for key, value in manifest["cleaning"].items() if key != "corpora"},
        }
        print(json.dumps(result, indent=1))
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
