"""``macaron finetune`` and ``macaron predict``: a user's own files, there and back."""

import csv
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import pipeline

from forked import macaron_text
from macaron.data.tabular import class_indices, find_classes, numbers_of, read_table
from macaron.errors import MacaronError

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
WORDS = ["the", "cat", "sat", "on", "mat", "it", "was", "and", "run", "away", "house"]
FAST = ("--learning-rate", "1e-3", "--batch-size", "16", "--device", "cpu")


def with_input(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command as a process, which reads standard input."""
    return macaron_text(*arguments, text=text)


def example(draw: random.Random, good: bool) -> str:
    words = [draw.choice(WORDS) for _ in range(5)]
    words[draw.randrange(5)] = "good" if good else "bad"
    return " ".join(words)


@pytest.fixture(scope="module")
def classifier(macaron, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a CSV whose texts have commas and line ends."""
    folder, draw = tmp_path_factory.mktemp("csv"), random.Random(2)
    for name, count in (("train", 300), ("dev", 80)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "review", "mood"])
            for i in range(count):
                good = draw.random() < 0.5
                rows.writerow([i, f'{example(draw, good)}, "it"\n{draw.choice(WORDS)}', "happy" if good else "angry"])
    columns = ("--text", "review", "--label", "mood")
    files = ("--train", folder / "train.csv", "--dev", folder / "dev.csv")
    done = macaron("finetune", encoder_folder, *files, *columns, *FAST, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    assert "2 classes: angry, happy" in done.stderr
    assert "the model is in" in done.stdout
    assert "F1 of happy " in done.stdout
    return folder / "run"


def test_it_learns_and_writes_its_numbers_down(classifier: Path):
    found = json.loads((classifier / "results.json").read_text())
    assert (found["labels"], found["f1_of"]) == (["angry", "happy"], "happy")
    assert found["scores"]["dev"]["accuracy"] > 90
    accuracies = [each["scores"]["dev"]["accuracy"] for each in found["epochs"]]
    assert found["scores"]["dev"]["accuracy"] == max(accuracies)
    assert found["epoch"] == 3 - accuracies[::-1].index(max(accuracies))  # the last of the best
    assert [each["epoch"] for each in map(json.loads, (classifier / "metrics.jsonl").read_text().splitlines())] == [
        1,
        2,
        3,
    ]


def test_lines_from_standard_input(classifier: Path):
    done = with_input("the good cat\na bad mat\n", "predict", classifier, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [label for label, _ in rows] == ["happy", "angry"]
    assert all(0.5 <= float(share) <= 1 for _, share in rows)


def test_an_empty_line_stays_empty(classifier: Path):
    command = ("predict", classifier, "--device", "cpu")
    full = with_input("the good cat\na bad mat\n", *command).stdout.splitlines()
    for text, expected in (
        ("\nthe good cat\n \t\na bad mat\n\n", ["", full[0], "", full[1], ""]),
        ("\n\n", ["", ""]),
        ("", []),
    ):
        done = with_input(text, *command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:-1] == expected
    found = [json.loads(line) for line in with_input("\ngood\n", *command, "--json").stdout.splitlines()]
    assert found[0] == {"example": 1, "texts": [""], "label": None, "probability": None, "probabilities": None}
    assert (found[1]["example"], found[1]["label"]) == (2, "happy")
    # Rows of a table likewise; a blank line is no row of several columns.
    for table, text, expected in (
        ("csv", 'review\nthe good cat\n""\na bad mat\n', [full[0], "", full[1]]),
        ("csv", "review,n\n,\nthe good cat,1\n\n,3\na bad mat,4\n", ["", full[0], "", full[1]]),
        ("tsv", "review\nthe good cat\n\na bad mat\n", [full[0], "", full[1]]),
        ("tsv", "review\tn\nthe good cat\t1\n\t\n\na bad mat\t\n", [full[0], "", full[1]]),
    ):
        done = with_input(text, *command, "--format", table, "--text", "review")
        assert done.stdout.split("\n")[:-1] == expected, done.stderr


def test_a_csv_gives_what_the_training_said(macaron, classifier: Path, tmp_path: Path):
    dev = classifier.parent / "dev.csv"
    done = macaron("predict", classifier, "--input", dev, "--json", "--output", tmp_path / "out", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    rows = list(csv.DictReader(io.StringIO(dev.read_text())))
    right = sum(a["label"] == b["mood"] for a, b in zip(found, rows, strict=True))
    accuracy = json.loads((classifier / "results.json").read_text())["scores"]["dev"]["accuracy"]
    assert 100 * right / len(rows) == pytest.approx(accuracy)
    assert found[0]["texts"] == [rows[0]["review"]]
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1)
    (tmp_path / "dev").write_text(dev.read_text())  # nothing in its name says what it is
    named = ("--input", tmp_path / "dev", "--format", "csv", "--text", "review")
    again = macaron("predict", classifier, *named, "--device", "cpu")
    assert [line.split("\t")[0] for line in again.stdout.splitlines()] == [each["label"] for each in found]


def test_transformers_pipeline_reads_the_folder(macaron, classifier: Path, tmp_path: Path):
    texts = ["the good cat", "a bad mat"]
    found = pipeline("text-classification", str(classifier / "model"), device="cpu")(texts)
    (tmp_path / "in").write_text("\n".join(texts))
    ours = macaron("predict", classifier, "--json", "--device", "cpu", "--input", tmp_path / "in").stdout.splitlines()
    for theirs, line in zip(found, map(json.loads, ours), strict=True):
        assert theirs["label"] == line["label"]
        assert theirs["score"] == pytest.approx(line["probability"], abs=1e-5)


def test_a_score_of_two_texts(macaron, encoder_folder: Path, tmp_path: Path):
    draw = random.Random(4)
    for name, count in (("train", 300), ("dev", 60)):
        lines = ["a\tb\tprice"]
        for _ in range(count):
            first, second = draw.random() < 0.5, draw.random() < 0.5
            lines.append(f'{example(draw, first)} "\t{example(draw, second)}\t{1000 + 100 * first + 100 * second}')
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    columns = ("--text", "a", "--text2", "b", "--label", "price", "--regression")
    (tmp_path / "huge.tsv").write_text("a\tb\tprice\nx\ty\t1e307\nx\ty\t9e307\n")  # their squares overflow
    huge = ("--train", tmp_path / "huge.tsv", "--dev", tmp_path / "dev.tsv", *columns, "--out", tmp_path / "none")
    assert "line 2: the score '1e307' is not a number" in macaron("finetune", encoder_folder, *huge).stderr
    files = ("--train", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv")
    options = ("--batch-size", "16", "--device", "cpu", "--epochs", 4)
    done = macaron("finetune", encoder_folder, *files, *columns, *options, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    # Without --learning-rate it follows the size of the model and the length of the run.
    assert "learning rate 0.001 (for hidden size 64 and 76 updates; 5e-05 for BERT-base" in done.stderr
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["learning_rate"] == 1e-3
    assert "the best in dev pearson" in done.stderr
    assert json.loads((tmp_path / "run" / "results.json").read_text())["scores"]["dev"]["pearson"] > 80
    (tmp_path / "pairs").write_text("the good cat\tgood mat\n\nbad house\ta bad mat\n")
    found = macaron("predict", tmp_path / "run", "--device", "cpu", "--input", tmp_path / "pairs")
    first, empty, last = found.stdout.splitlines()
    assert empty == ""
    high, low = float(first), float(last)
    assert low < 1070 < 1130 < high
    (tmp_path / "one").write_text("good\n")
    one = macaron("predict", tmp_path / "run", "--device", "cpu", "--input", tmp_path / "one")
    assert (one.returncode, one.stdout) == (1, "")
    assert "one, line 1: expected two texts" in one.stderr


def test_bad_files_are_named_with_the_line(tmp_path: Path):
    def table(name: str, text: str, label: str | None = "label"):
        (tmp_path / name).write_text(text)
        return read_table(tmp_path / name, ["text"], label)

    for name, text, words in (
        ("a.tsv", "txt\tlabel\na\t1\n", r"a\.tsv, line 1: no column 'text' in the header; did you mean 'txt'"),
        ("a.tsv", "text\ttext\tlabel\na\tb\t1\n", "2 columns are named 'text'"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", r"a\.tsv, line 3: 1 columns, the header has 2"),
        ("a.tsv", "text\tlabel\na\t\n", r"a\.tsv, line 2: the label is empty"),
        ("a.tsv", f"text\tlabel\n{'a' * 1_000_001}\t1\n", r"a\.tsv, line 2: a value has 1,000,001 characters"),
        ("a.tsv", "text\tlabel\n", r"a\.tsv: no examples"),
        ("a.tsv", "", r"a\.tsv, line 1: no header\. The first line must name the columns"),
        (
            "a.txt",
            "text,label\na,1\n",
            r"a\.txt, line 1: no column 'text' .*The name of a file with commas must end in \.csv",
        ),
        ("a.csv", 'text,label\n"a,1\n', r"a\.csv, line 2: not valid CSV"),
        ("a.csv", "text,label\na,b,1\n", r"a\.csv, line 2: 3 columns, the header has 2"),
    ):
        with pytest.raises(MacaronError, match=words):
            table(name, text)
    with pytest.raises(MacaronError, match="all labels are '1'"):
        find_classes(table("a.tsv", "text\tlabel\na\t1\nb\t1\n"))
    with pytest.raises(MacaronError, match=r"9 different labels in 9 examples\. Give --regression"):
        find_classes(table("a.tsv", "text\tlabel\n" + "".join(f"a\t0.{i}\n" for i in range(9))))
    with pytest.raises(MacaronError, match=r"a\.tsv, line 3: the label 'c' is not among the classes: a, b"):
        class_indices(table("a.tsv", "text\tlabel\nx\ta\ny\tc\n"), ("a", "b"))
    with pytest.raises(MacaronError, match=r"a\.tsv, line 3: the score 'inf' is not a number"):
        numbers_of(table("a.tsv", "text\tlabel\nx\t1.5\ny\tinf\n"))


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(f"x\t{i % 11}\n" for i in range(44)))
    assert find_classes(read_table(tmp_path / "a.tsv", ["text"], "label")) == tuple(map(str, range(11)))
    for odd in ("--3", "+-1", "-", "1" * 5000):  # words, not numbers
        (tmp_path / "a.tsv").write_text("text\tlabel\n" + f"x\t{odd}\nx\t12\nx\t2\n" * 3)
        assert find_classes(read_table(tmp_path / "a.tsv", ["text"], "label")) == tuple(sorted([odd, "12", "2"]))


def test_usage_and_refusals(macaron, classifier: Path, encoder_folder: Path, tmp_path: Path):
    files = ("--train", classifier.parent / "train.csv", "--dev", classifier.parent / "dev.csv")
    ask = (encoder_folder, *files, "--text", "review", "--label", "mood", "--out", tmp_path / "run")
    for arguments, code, words in (
        (("predict", classifier, "--text2", "b"), 2, "--text2 needs --text"),
        (("predict", encoder_folder, "--device", "cpu"), 1, "not fine-tuned yet"),
        (("predict", classifier, "--input", tmp_path / "none"), 1, "none: No such file"),
        (("finetune", *ask, "--symmetric"), 2, "--symmetric swaps two texts: give --text2"),
        (("finetune", *ask, "--learning-rate", "0"), 2, "macaron: --learning-rate must be above 0, not 0.0"),
    ):
        done = macaron(*arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    full = macaron("finetune", encoder_folder, *files, "--out", classifier)
    assert full.returncode == 1
    assert "is not empty" in full.stderr
    wrong = macaron("finetune", encoder_folder, *files, "--text", "reviews", "--out", tmp_path / "run")
    assert (
        "train.csv, line 1: no column 'reviews' in the header; did you mean 'review'? Name the columns" in wrong.stderr
    )
    assert not (tmp_path / "run").exists()


def test_help_imports_nothing_heavy():
    code = "import sys, macaron.cli; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), 'heavy'"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
