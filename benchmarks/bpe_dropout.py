"""Time and memory of BPE-dropout: words found once, then split anew for every epoch.

    python benchmarks/bpe_dropout.py data/prepared/deen-mix --out docs/results/bpe-dropout.json

Measured on one core, in this process, on the whole training data of a prepared folder. Memory is the largest resident
set, the interpreter with torch and the stored tokens included.
"""

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import command, environment, write_json

from macaron.data.bpe_dropout import Merges, SplitWords
from macaron.data.prepared import PairStore, PreparedData
from macaron.data.store import TokenList


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a prepared folder")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(options.data, options.share, options.epochs)
    for name, value in found.items():
        print(f"{name:24} {value}")
    if options.out:
        write_json(options.out, {"command": command(), **found, "environment": environment(torch.device("cpu"))})


def measured(folder: Path, share: float, epochs: int) -> dict[str, Any]:
    """Find the words of the training data and split them."""
    data = PreparedData.open(folder)
    stored = data.pairs("train")
    everything = np.arange(len(stored))
    sides = (TokenList(side.take(everything), side.lengths()) for side in (stored.source, stored.target))
    pairs, merges = PairStore(*sides), Merges(data.tokenizer)
    started = time.perf_counter()
    words = SplitWords(merges, pairs)
    finding = time.perf_counter() - started
    seconds, tokens = [], []
    for epoch in range(1, epochs + 1):
        started = time.perf_counter()
        drawn = words.draw(share, [1, epoch])
        seconds.append(time.perf_counter() - started)
        tokens.append(drawn.source.tokens + drawn.target.tokens)
    before = pairs.source.tokens + pairs.target.tokens
    return {
        "share": share,
        "pairs": len(stored),
        "tokens": before,
        "words": len(words.word),
        "distinct_words": len(words.draws),
        "splits_in_an_epoch": int(words.draws.sum()),
        "seconds_to_find_words": round(finding, 2),
        "seconds_of_epochs": [round(each, 2) for each in seconds],
        "words_per_second": round(len(words.word) / min(seconds)),
        "tokens_after": round(float(np.mean(tokens)) / before, 3),
        "peak_resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


if __name__ == "__main__":
    main()
