"""How often the cross-attention links the right words.

    python benchmarks/alignment.py RUN --train train.de.xz train.en.xz --test valid.de.xz valid.en.xz --out F.json

There are no alignments by hand. Right are pairs of words that in the training text nearly always occur together: each
is the other's best partner in the sentence by Dice's coefficient, which is at least 0.4, and is there once. Beside the
alignment stands the diagonal, which links words by their place alone.
"""

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path

from common import command, environment, print_table, write_json

from macaron.decode.place_tags import word_spans
from macaron.decode.translator import Translator
from macaron.files import read_lines

Pair = tuple[str, str]


def words(line: str) -> list[str]:
    return [line[start:end].lower() for start, end in word_spans(line)]


def pairs(files: list[Path], count: int) -> list[Pair]:
    return list(islice(zip(*map(read_lines, files), strict=True), count))


class Partners:
    """Dice's coefficients of the words of a corpus."""

    def __init__(self, corpus: list[Pair]) -> None:
        self.counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.together: Counter[Pair] = Counter()
        for source, target in corpus:
            sides = set(words(source)), set(words(target))
            for counts, side in zip(self.counts, sides, strict=True):
                counts.update(side)
            self.together.update((a, b) for a in sides[0] for b in sides[1])

    def dice(self, source: str, target: str) -> float:
        both = self.together[source, target]
        return 2 * both / (self.counts[0][source] + self.counts[1][target]) if both >= 3 else 0.0

    def links(self, source: list[str], target: list[str]) -> list[tuple[int, int]]:
        found = []
        for place, word in enumerate(target):
            best = max(source, key=lambda each: self.dice(each, word), default="")
            score = self.dice(best, word)
            once = target.count(word) == source.count(best) == 1 and word[0].isalpha()
            if once and score >= 0.4 and score == max(self.dice(best, each) for each in target):
                found.append((source.index(best), place))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder, or the folder of a run")
    parser.add_argument("--train", type=Path, nargs=2, required=True, help="source and target, to count words in")
    parser.add_argument("--test", type=Path, nargs=2, required=True, help="source and target, to align")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()
    partners = Partners(pairs(arguments.train, 60_000))
    test = pairs(arguments.test, 1_000)
    translator = Translator(arguments.model, device=arguments.device)
    aligned = translator.align([source for source, _ in test], [target for _, target in test])
    total, right = 0, Counter({"attention": 0, "diagonal": 0})
    for (source, target), alignment in zip(test, aligned, strict=True):
        spans, others = word_spans(source), word_spans(target)
        for a, b in partners.links(words(source), words(target)):
            total += 1
            right["attention"] += alignment is not None and alignment[b].source == spans[a]
            right["diagonal"] += round(b * len(spans) / len(others)) == a
    print(f"{total:,} links of {len(test):,} sentences")
    print_table(["linked by", "right"], [[name, f"{count / total:.1%}"] for name, count in right.items()])
    if arguments.out is not None:
        found = {
            "command": command(),
            "environment": environment(translator.model.device),
            "sentences": len(test),
            "links": total,
            "right": {name: round(count / total, 4) for name, count in right.items()},
        }
        write_json(arguments.out, found)


if __name__ == "__main__":
    main()
