"""What a translation loses when several sentences stand on one line.

    python benchmarks/joined_lines.py RUN --source valid.de.xz --reference valid.en.xz --out F.json
    python benchmarks/joined_lines.py RUN --data DATA --split valid --out F.json

Three translations of the same sentences, each N to a line:

    one to a line    each line is one sentence, translated whole; the translations are joined
    split            the lines are joined, and split into sentences again, as ``macaron translate`` does
    whole            the joined lines are translated whole (``--one-per-line``)

All three are scored by sacreBLEU against the same references, which are joined, too.
"""

import argparse
from pathlib import Path

from common import command, environment, print_table, write_json

from macaron.data.prepared import PreparedData
from macaron.decode.translator import Translator
from macaron.evaluate.scores import sacre_bleu
from macaron.files import one_line, read_lines


def joined(lines: list[str], count: int) -> list[str]:
    """Lines of so many sentences each, with one space between them."""
    return [" ".join(lines[start : start + count]) for start in range(0, len(lines), count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder, or the folder of a run")
    parser.add_argument("--data", type=Path, help="a prepared folder of plain text")
    parser.add_argument("--split", default="valid", choices=("valid", "test"))
    parser.add_argument("--source", type=Path, help="plain text, one sentence to a line")
    parser.add_argument("--reference", type=Path, help="its translation")
    parser.add_argument("--sentences", type=int, default=5, help="sentences to a line")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()
    if arguments.data is not None:
        data = PreparedData.open(arguments.data)
        sources, references = (data.text(arguments.split, language) for language in data.languages)
    elif arguments.source is not None and arguments.reference is not None:
        sources, references = list(read_lines(arguments.source)), list(read_lines(arguments.reference))
    else:
        parser.error("give --data DIR, or --source FILE and --reference FILE")

    count = arguments.sentences
    translator = Translator(arguments.model, device=arguments.device)
    lines, wanted = joined(sources, count), joined(references, count)
    outputs = {
        "one to a line": joined(translator.translate(sources, one_per_line=True), count),
        "split": translator.translate(lines),
        "whole": translator.translate(lines, one_per_line=True),
    }
    scores = {name: sacre_bleu([one_line(text) for text in texts], wanted).score for name, texts in outputs.items()}
    best = scores["one to a line"]
    same = sum(a == b for a, b in zip(outputs["one to a line"], outputs["split"], strict=True))
    print(f"{len(sources):,} sentences, {count} to a line; {same} of {len(lines)} lines are the same when split")
    print_table(
        ["translated", "sacreBLEU", "difference"],
        [[name, f"{score:.2f}", f"{score - best:+.2f}"] for name, score in scores.items()],
    )
    if arguments.out is not None:
        result = {
            "command": command(),
            "environment": environment(translator.model.device),
            "sentences": len(sources),
            "sentences_to_a_line": count,
            "same_lines": same,
            "lines": len(lines),
            "bleu": {name: round(score, 3) for name, score in scores.items()},
            "loss": round(best - scores["split"], 3),
        }
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
