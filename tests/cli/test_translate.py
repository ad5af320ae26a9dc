"""``macaron translate`` through the real command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from forked import macaron, server
from macaron.decode import Sampling, Translator
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

COMMAND = [sys.executable, "-m", "macaron", "translate"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
LINES = ["The cat sits on the mat.", "", "Where is it?", "A cat and\u2028a dog."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "model"
    tokenizer = MacaronTokenizer.train(["The cat sits on the mat.", "Where is it? A dog and a cat."], 290)
    torch.manual_seed(0)
    config = preset(
        "macaron-tiny",
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        tokenizer_fingerprint=tokenizer.fingerprint(),
    )
    model = TranslationModel(config)
    with torch.no_grad():  # away from fresh weights, which only repeat their last token
        for parameter in model.decoder.parameters():
            parameter.mul_(3.0)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator(folder)


def run(*arguments: object, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return macaron("translate", *arguments, text=text)


def one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def test_an_answer_to_each_line_as_it_is_typed(folder: Path, translator: Translator):
    process = subprocess.Popen(
        [*COMMAND, str(folder), "--max-length", "8", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin, process.stdout, process.stderr:
        for line, expected in zip(LINES, translator.translate(LINES, max_length=8), strict=True):
            process.stdin.write(line.encode() + b"\r\n")
            process.stdin.flush()
            assert process.stdout.readline().decode() == one_line(expected) + "\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_stopped_while_writing_a_file(number: signal.Signals, folder: Path, tmp_path: Path):
    """Nothing is left of it: what was there stays, and no temporary file."""
    (tmp_path / "out.txt").write_text("before\n")
    os.mkfifo(tmp_path / "in")
    arguments = ("translate", folder, "--output", tmp_path / "out.txt", "--device", "cpu")
    command = server().start(*arguments, text=str(tmp_path / "in"))
    with (tmp_path / "in").open("w"):  # standard input stays open: the command waits for more
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.txt.*")):
            assert time.monotonic() < deadline, command.text
            time.sleep(0.01)
        command.send(number)
        assert command.wait() == 128 + number
    assert command.text == f"macaron: stopped by {'Ctrl-C' if number == signal.SIGINT else number.name}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.txt"]
    assert (tmp_path / "out.txt").read_text() == "before\n"


def test_files_scores_and_lists(folder: Path, translator: Translator, tmp_path: Path):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    arguments = ("--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--max-length", 8, "--beam", 3)
    done = run(
        folder, *arguments, "--one-per-line", "--nbest", 2, "--scores", "--length-penalty", 0.6, "--batch-tokens", 20
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    expected = [
        f"{number}\t{each.score:.4f}\t{one_line(each.text)}"
        for number, best in enumerate(
            translator.translate_nbest(LINES, beam=3, nbest=2, length_penalty=0.6, max_length=8), start=1
        )
        for each in best
    ]
    rows = [row.split("\t", 2) for row in (tmp_path / "out.txt").read_bytes().decode().split("\n")[:-1]]
    assert [f"{number}\t{float(score):.4f}\t{text}" for number, score, text in rows] == expected


def test_json_and_samples(folder: Path, translator: Translator):
    arguments = (folder, "--json", "--sample", "--seed", 5, "--top-k", 20, "--nbest", 3, "--max-length", 8)
    done = run(*arguments, "--one-per-line", text="\n".join(LINES).encode())
    assert done.returncode == 0, done.stderr
    records = [json.loads(row) for row in done.stdout.decode().split("\n")[:-1]]
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert [record["source"] for record in records] == LINES
    assert [len(record["translations"]) for record in records] == [3, 1, 3, 3]
    drawn = translator.translate_nbest(LINES, sampling=Sampling(seed=5, top_k=20), nbest=3, max_length=8)
    for record, best in zip(records, drawn, strict=True):
        assert [each["text"] for each in record["translations"]] == [each.text for each in best]
    first = records[0]["translations"][0]
    assert first["score"] == pytest.approx(sum(first["token_scores"]) / len(first["tokens"]))


def test_lines_of_several_sentences(folder: Path, translator: Translator):
    cat, where = translator.translate(["The cat sits.", "Where is it?"], one_per_line=True, max_length=8)
    text = "The cat sits. Where is it?\n\n \t- Where is it?\n1) The cat sits.\t42 \n" + "x" * 3000
    done = run(folder, "--max-length", 8, "--device", "cpu", text=text.encode())
    assert done.returncode == 0
    expected = [f"{cat} {where}", "", f" \t- {where}", f"1) {cat}\t42 ", "x" * 3000]
    assert done.stdout.decode().split("\n")[:-1] == [one_line(line) for line in expected]
    assert "macaron: 1 line (5): a word was too long for the model" in done.stderr.decode()
    done = run(folder, "--max-length", 8, "--device", "cpu", "--one-per-line", "--scores", text=b"A dog. The cat sits.")
    ((best,),) = translator.translate_nbest(["A dog. The cat sits."], nbest=1, max_length=8)
    score, _, text = done.stdout.decode().partition("\t")
    assert text == one_line(best.text) + "\n"
    assert float(score) == pytest.approx(best.score, abs=1e-4)


def test_numbers_are_kept_and_that_is_said(folder: Path):
    done = run(folder, "--max-length", 8, text=b"3 4 5\n\n7,5 -- 6\n")
    assert (done.returncode, done.stdout) == (0, b"3 4 5\n\n7,5 -- 6\n")
    assert done.stderr.startswith(b"macaron: nothing was translated: no line has words")
    assert run(folder, text=b"\n \n").stderr == b""
    # A line that was kept for another reason gets that one alone.
    for options in ((), ("--one-per-line",)):
        said = run(folder, "--max-length", 8, *options, text=b"x" * 3000).stderr
        assert said == b"macaron: 1 line (1): a word was too long for the model and was kept as it is\n"


def test_a_reader_that_has_enough_is_no_error(folder: Path, tmp_path: Path):
    (tmp_path / "in.txt").write_text("The cat.\n" * 300)
    options = f"--one-per-line --greedy --max-length 2 --batch-tokens 8 --input {tmp_path / 'in.txt'}"
    command = f"{' '.join(COMMAND)} {folder} {options}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"], capture_output=True, check=False, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


def test_bad_input_is_named_and_leaves_no_file(folder: Path, tmp_path: Path):
    place = tmp_path / "out.txt"
    done = run(folder, "--output", place, "--max-length", 3, text=b"The cat\n\xff\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"macaron: standard input, line 2: not valid UTF-8")
    assert list(tmp_path.iterdir()) == []


def test_lines_before_a_refused_one_are_written(folder: Path, translator: Translator, tmp_path: Path):
    good = ["The cat sits.", "", "Where is it?"]
    text = "\n".join([*good, "A dog. The cat sits " + "on the mat " * 20, "A dog."]).encode()
    arguments = ("--long-lines", "refuse", "--max-source-length", 30, "--max-length", 8, "--device", "cpu")
    done = run(folder, *arguments, text=text)
    assert done.returncode == 1
    assert done.stderr.startswith(b"macaron: line 4 has ")
    assert done.stdout.decode().split("\n")[:-1] == [one_line(t) for t in translator.translate(good, max_length=8)]
    # A file is there entirely or not at all.
    assert run(folder, *arguments, "--output", tmp_path / "out", text=text).returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_usage_errors(folder: Path):
    for arguments, words in (
        (["--greedy", "--beam", "3"], "--greedy"),
        (["--top-k", "3"], "--top-k is for --sample"),
        (["--sample", "--beam", "3"], "--nbest"),
        (["--nbest", "3", "--beam", "2"], "--beam 3"),
        (["--nbest", "3"], "add --one-per-line"),
    ):
        done = run(folder, *arguments)
        assert done.returncode == 2
        assert words in done.stderr.decode()


# Documents


def test_a_document(folder: Path, tmp_path: Path):
    page = tmp_path / "page.HTML"
    page.write_bytes(b"\xef\xbb\xbf<p>The <b>cat</b> sits.\r\n</p><pre>The cat</pre> 12 https://a.org/b")
    done = run(folder, "--document", page, "--output", tmp_path / "out.html", "--device", "cpu", "--greedy")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    made = (tmp_path / "out.html").read_bytes()
    assert made.startswith(b"\xef\xbb\xbf<p>")
    assert made.endswith(b"\r\n</p><pre>The cat</pre> 12 https://a.org/b")
    assert sorted(re.findall(rb"<[^>]*>", made)) == sorted(re.findall(rb"<[^>]*>", page.read_bytes()))
    assert run(folder, "--document", page, "--device", "cpu", "--greedy").stdout == made


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--document", "a.pdf"], 2, "a.pdf: a document is one of .txt, .html, .htm, .srt"),
        (["--document", "a.txt", "--one-per-line"], 2, "--document goes without"),
        (["--document", "gone.txt"], 1, "gone.txt"),
        (["--document", "bad.srt"], 1, "bad.srt: not UTF-8 text"),
    ],
)
def test_documents_that_are_refused(folder: Path, tmp_path: Path, arguments: list[str], code: int, message: str):
    (tmp_path / "a.txt").write_text("The cat.")
    (tmp_path / "bad.srt").write_bytes(b"\xff\xfe")
    done = run(folder, arguments[0], tmp_path / arguments[1], *arguments[2:])
    assert (done.returncode, done.stdout) == (code, b"")
    assert message in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
