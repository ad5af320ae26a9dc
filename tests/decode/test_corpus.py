"""``macaron translate --corpus``: aligned files, what is left out, and the same bytes however often it is stopped."""

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from forked import macaron_text, server
from macaron.decode import Sampling, Translator
from macaron.decode.corpus import translate_corpus
from macaron.errors import Interrupted, MacaronError
from macaron.files import one_line
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.processes import Progress
from macaron.text import MacaronTokenizer

WORDS = ["The", "cat", "sits", "on", "the", "mat.", "Where", "is", "it?", "A", "dog", "and", "a", "cat."]
LINES = [" ".join(WORDS[(3 * i + j) % len(WORDS)] for j in range(2 + i % 5)) for i in range(48)]
OPTIONS: dict[str, Any] = {"max_length": 8, "batch_tokens": 2, "sampling": Sampling(top_k=20, seed=3)}
ARGUMENTS = ("--max-length", 8, "--batch-tokens", 2, "--sample", "--top-k", 20, "--seed", 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "model"
    tokenizer = MacaronTokenizer.train(LINES, 300, source_lang="en", target_lang="de", tags=["<law>", "<news>"])
    torch.manual_seed(0)
    sizes = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = preset("macaron-tiny", vocab_size=len(tokenizer), tokenizer_fingerprint=tokenizer.fingerprint(), **sizes)
    model = TranslationModel(config)
    with torch.no_grad():  # away from fresh weights, which only repeat their last token
        for parameter in model.decoder.parameters():
            parameter.mul_(3.0)
        # An end that most states are near to: translations end early.
        states = model.decode(torch.arange(4, 24)[None], model.encode(torch.arange(4, 24)[None]))
        model.embedding.tokens.weight[2] = 0.25 * states.mean(dim=(0, 1))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator(folder)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    lines = [line.encode() for line in LINES]
    lines[3], lines[20], lines[30] = b" \t", b"caf\xe9", b"cat " * 300
    lines[40] = b"  The\tcat  sits "
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def made(out: Path) -> tuple[bytes, bytes]:
    assert not list(out.parent.glob(f"{out.name}.*.part"))
    return out.with_name(f"{out.name}.en").read_bytes(), out.with_name(f"{out.name}.de").read_bytes()


def test_pairs_are_those_of_the_translator(folder: Path, translator: Translator, text: Path, tmp_path: Path):
    done = macaron_text("translate", folder, "--corpus", text, "--out", tmp_path / "bt", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    source, target = (content.decode().split("\n")[:-1] for content in made(tmp_path / "bt"))
    given = ["" if i in (3, 20, 30) else "The cat sits" if i == 40 else line for i, line in enumerate(LINES)]
    found = translator.translate_nbest(given, nbest=1, **{**OPTIONS, "batch_tokens": 64})
    expected = [
        (line, " ".join(best[0].text.split()))
        for line, best in zip(given, found, strict=True)
        if best[0].text.split() and len(best[0].tokens) <= 8
    ]
    assert len(expected) > 15
    assert set(zip(source, target, strict=True)) <= set(expected)
    counts = json.loads((tmp_path / "bt.json").read_text())["counts"]
    assert counts["read"] == 48
    assert (counts["bad bytes"], counts["empty"], counts["too long"]) == (1, 1, 1)
    assert counts["kept"] == len(source) == len(expected) - counts.get("loop", 0)
    assert sum(counts.values()) == 96
    assert "48 lines\n- 1 bad bytes: not UTF-8" in done.stdout
    assert f"{len(source)} pairs in {tmp_path}/bt.en and {tmp_path}/bt.de" in done.stdout
    again = macaron_text("translate", folder, "--corpus", text, "--out", tmp_path / "bt", *ARGUMENTS)
    assert (again.returncode, again.stdout) == (0, f"{tmp_path}/bt is complete: nothing to do\n")


def test_compressed_text_and_other_batches_give_the_same(translator: Translator, text: Path, tmp_path: Path):
    quiet = Progress(quiet=True)
    translate_corpus(translator, text, tmp_path / "plain", OPTIONS, quiet)
    for ending, compress in ((".gz", gzip.compress), (".xz", lzma.compress)):
        packed = tmp_path / f"text{ending}"
        packed.write_bytes(compress(text.read_bytes()))
        translate_corpus(translator, packed, tmp_path / ending[1:], {**OPTIONS, "batch_tokens": 30}, quiet)
        assert made(tmp_path / ending[1:]) == made(tmp_path / "plain")


class Stopped(Translator):
    """A translator that is stopped by Ctrl-C at every second step."""

    calls = 0

    def translate_nbest(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls % 2 == 0:
            raise KeyboardInterrupt
        return super().translate_nbest(*args, **options)


def test_stopped_at_each_step_it_goes_on_and_ends_with_the_same_bytes(
    folder: Path, translator: Translator, text: Path, tmp_path: Path
):
    quiet = Progress(quiet=True)
    counts = translate_corpus(translator, text, tmp_path / "whole", OPTIONS, quiet)
    stopped, read, ended = Stopped(folder), [0], None
    while ended is None:
        try:
            ended = translate_corpus(stopped, text, tmp_path / "parts", OPTIONS, quiet)
        except Interrupted as error:
            message = str(error)
            noted = json.loads((tmp_path / "parts.json").read_text())
            assert f"stopped after {noted['read']} of 48 lines" in message
            assert not noted["complete"]
            assert noted["read"] > read[-1]
            read.append(noted["read"])
            with (tmp_path / "parts.de.part").open("ab") as file:  # written, but not noted when it was killed
                file.write(b"half a line")
    assert len(read) > 3
    assert ended == counts
    assert made(tmp_path / "parts") == made(tmp_path / "whole")
    assert (tmp_path / "parts.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_a_killed_command_goes_on(folder: Path, translator: Translator, text: Path, tmp_path: Path):
    translate_corpus(translator, text, tmp_path / "whole", OPTIONS, Progress(quiet=True))
    arguments = ("translate", folder, "--corpus", text, "--out", tmp_path / "killed", *ARGUMENTS)
    command = server().start(*arguments)
    command.until(tmp_path / "killed.json", 1)
    command.send(signal.SIGKILL)
    command.wait()
    server().run(*arguments)
    assert made(tmp_path / "killed") == made(tmp_path / "whole")


def test_what_would_not_fit_together_is_refused(translator: Translator, text: Path, tmp_path: Path, folder: Path):
    quiet, out = Progress(quiet=True), tmp_path / "bt"
    stopped = Stopped(folder)
    with pytest.raises(Interrupted):
        translate_corpus(stopped, text, out, OPTIONS, quiet)
    with pytest.raises(MacaronError, match=r"begun with other settings: max_length was 8, is 9"):
        translate_corpus(translator, text, out, {**OPTIONS, "max_length": 9}, quiet)
    with pytest.raises(MacaronError, match=r"tag was None, is '<law>'"):
        translate_corpus(Translator(folder, tag="<law>"), text, out, OPTIONS, quiet)
    changed = tmp_path / "changed"
    changed.write_bytes(b"Another" + text.read_bytes())
    with pytest.raises(MacaronError, match="is not the text that"):
        translate_corpus(translator, changed, out, OPTIONS, quiet)
    with pytest.raises(MacaronError, match=r"text\.en exists already"):
        translate_corpus(translator, text, text.with_suffix(""), OPTIONS, quiet)
    translate_corpus(translator, text, out, OPTIONS, quiet)
    changed.write_bytes(text.read_bytes() + b"One more.\n")
    with pytest.raises(MacaronError, match="is not the text that"):
        translate_corpus(translator, changed, out, OPTIONS, quiet)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(MacaronError, match="empty is empty"):
        translate_corpus(translator, tmp_path / "empty", tmp_path / "other", OPTIONS, quiet)
    note = tmp_path / "bt.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "read": 0}))  # complete, but nothing was read
    with pytest.raises(MacaronError, match="is not the text that"):
        translate_corpus(translator, text, out, OPTIONS, quiet)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "a"], "--corpus FILE and --out PREFIX belong together"),
        (["--out", "a"], "--corpus FILE and --out PREFIX belong together"),
        (["--corpus", "a", "--out", "b", "--json"], "--corpus goes without"),
    ],
)
def test_mistakes_in_the_call(arguments: list[str], message: str):
    done = macaron_text("translate", "nowhere", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_tags(folder: Path, translator: Translator):
    law, news = (Translator(folder, tag=tag) for tag in ("<law>", "<news>"))
    lines = LINES[:8]
    plain = [[best[0] for best in each.translate_nbest(lines, nbest=1)] for each in (translator, law, news)]
    assert len({tuple(best.tokens for best in found) for found in plain}) == 3
    # A tag for each line, and "<law>" as text.
    mixed = translator.translate_nbest(lines, nbest=1, tags=[None, "<law>"] * 4)
    assert [best[0].tokens for best in mixed] == [plain[i % 2][i].tokens for i in range(8)]
    as_text, as_tag = (
        each.translate_nbest([line])[0][0] for each, line in ((translator, "<law> The cat"), (law, "The cat"))
    )
    assert abs(as_text.score - as_tag.score) > 1e-3
    with pytest.raises(MacaronError, match="unknown tag '<sport>': this model knows <law>, <news>"):
        Translator(folder, tag="<sport>")
    done = macaron_text("translate", folder, "--one-per-line", "--tag", "<news>", text="\n".join(lines))
    assert done.stdout.split("\n")[:-1] == [one_line(best.text) for best in plain[2]]


def test_processes_share_a_corpus(folder: Path, translator: Translator, text: Path, tmp_path: Path):
    """Two and three processes write the bytes of one; the first one speaks."""
    translate_corpus(translator, text, tmp_path / "alone", OPTIONS, Progress(quiet=True))
    for world in (2, 3):
        out = tmp_path / f"by-{world}"
        said = server().run_group(world, "translate", folder, "--corpus", text, "--out", out, *ARGUMENTS)
        assert made(out) == made(tmp_path / "alone")
        assert said.count("pairs in ") == 1
        notes = [json.loads(Path(f"{each}.json").read_text()) for each in (out, tmp_path / "alone")]
        assert notes[0] == notes[1]
        again = server().run_group(world, "translate", folder, "--corpus", text, "--out", out, *ARGUMENTS)
        assert again.count("is complete: nothing to do") == 1


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_loses_nothing_that_was_done(
    folder: Path, translator: Translator, text: Path, tmp_path: Path, killed: int
):
    """The others end with a message; the command given again, by any number of processes, goes on."""
    translate_corpus(translator, text, tmp_path / "alone", OPTIONS, Progress(quiet=True))
    out = tmp_path / "shared"
    arguments = ("translate", folder, "--corpus", text, "--out", out, *ARGUMENTS)
    commands = server().group(2, *arguments)
    commands[0].until(Path(f"{out}.json"), 1)
    commands[killed].send(signal.SIGKILL)
    assert commands[killed].wait() == -signal.SIGKILL
    other = commands[1 - killed]
    if not killed:
        other.send(signal.SIGTERM)  # as torchrun does; alone it would wait ten seconds before it says what happened
    code = other.wait()
    done = json.loads(Path(f"{out}.json").read_text())["read"]
    assert done > 0
    if killed:
        assert code == 1
        assert "another process of this run has ended. See its message, and give the same command again" in other.text
    assert "Traceback" not in other.text
    server().run(*arguments) if killed else server().run_group(2, *arguments)
    assert made(out) == made(tmp_path / "alone")


@pytest.mark.slow
def test_torchrun_restarts_a_killed_process(folder: Path, translator: Translator, text: Path, tmp_path: Path):
    """The real thing: one of two processes is killed, torchrun starts both again, and they go on."""
    translate_corpus(translator, text, tmp_path / "alone", OPTIONS, Progress(quiet=True))
    out = tmp_path / "shared"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "-m", "macaron", "translate", folder, "--corpus", text, "--out", out, *ARGUMENTS]
    process = subprocess.Popen(
        list(map(str, command)), env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    note = Path(f"{out}.json")
    while not note.exists():
        assert process.poll() is None
        time.sleep(0.001)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert made(out) == made(tmp_path / "alone")


def test_several_processes_share_nothing_else(folder: Path):
    done = server().run_group(2, "translate", folder, code=2)
    assert "several processes (torchrun) can share the work of --corpus only" in done
