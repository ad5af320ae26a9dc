"""Forced scores of given translations: `PairScorer` and ``macaron score``."""

import math
from pathlib import Path

import pytest
import torch

from forked import macaron_text
from macaron.decode import PairScorer, Translator
from macaron.errors import MacaronError
from macaron.models import TranslationModel, preset
from macaron.text import MacaronTokenizer

FIXTURES = Path(__file__).resolve().parent.parent / "compatibility" / "fixtures"
MODEL = FIXTURES / "translation"


def lines(name: str, count: int = 40) -> list[str]:
    return (FIXTURES / "corpus" / name).read_text(encoding="utf-8").splitlines()[:count]


@pytest.fixture(scope="module")
def scorer() -> PairScorer:
    return PairScorer(MODEL, device="cpu")


def test_the_score_of_a_translation_is_the_one_that_translate_reports(scorer: PairScorer):
    sources = lines("train.de")
    translator = Translator(MODEL, device="cpu")
    found = [best[0] for best in translator.translate_nbest(sources, nbest=1)]
    # A text may be divided into other subwords than those that the model wrote; it is then scored as another one.
    written = [list(each.tokens) for each in found]
    again = translator.tokenizer.encode_lines([each.text for each in found], "target")
    same = [i for i, tokens in enumerate(written) if tokens == again[i]]
    assert len(same) >= 20
    scores = scorer.score([sources[i] for i in same], [found[i].text for i in same])
    for i, each in zip(same, scores, strict=True):
        assert each.per_token == pytest.approx(found[i].score, abs=1e-4)
        assert each.log_probability == pytest.approx(sum(found[i].token_scores), abs=1e-4)
        assert each.tokens == len(found[i].tokens)


def test_a_score_is_the_sum_over_the_tokens(scorer: PairScorer):
    """Step by step, without padding or batches."""
    source, target = lines("valid.de")[0], lines("valid.en")[0]
    tokenizer, model = scorer.tokenizer, scorer.model
    ids, goal = (
        torch.tensor(tokenizer.encode_lines([text], side)) for text, side in ((source, "source"), (target, "target"))
    )
    total, past = 0.0, [2]
    for token in goal[0].tolist():
        with torch.no_grad():
            total += model(ids, torch.tensor([past]))[0, -1].log_softmax(-1)[token].item()
        past.append(token)
    (found,) = scorer.score([source], [target])
    assert found.log_probability == pytest.approx(total, abs=1e-3)
    assert found.tokens == goal.shape[1]


def test_a_score_does_not_depend_on_its_batch(scorer: PairScorer):
    sources, targets = lines("valid.de"), lines("valid.en")
    together = scorer.score(sources, targets)
    for tokens in (1, 100, 100_000):
        again = scorer.score(sources, targets, batch_tokens=tokens)
        assert [each.tokens for each in again] == [each.tokens for each in together]
        assert [each.log_probability for each in again] == pytest.approx(
            [each.log_probability for each in together], abs=1e-3
        )
    # Their own translations are more probable than those of others.
    turned = scorer.score(sources, targets[1:] + targets[:1])
    assert sum(map(_total, together)) > sum(map(_total, turned))


def _total(each) -> float:
    return each.log_probability


def test_empty_and_long_sides(tmp_path: Path):
    tokenizer = MacaronTokenizer.train(["a b c d"] * 5, 280)
    torch.manual_seed(0)
    config = preset("macaron-tiny", vocab_size=len(tokenizer), hidden_size=16, max_position_embeddings=12)
    TranslationModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    small = PairScorer(tmp_path, device="cpu")
    none, no_target, no_source, long, whole = small.score(
        ["", "a b", " ", "a", "a " * 5], [" ", "", "a b", "a b c d " * 9, "b"]
    )
    assert (none.log_probability, none.tokens, none.per_token) == (0.0, 0, 0.0)
    assert no_target.tokens == 1
    assert no_source.tokens > 1
    assert all(
        math.isfinite(each.log_probability) and each.log_probability < 0 for each in (no_target, no_source, whole)
    )
    assert math.isnan(long.log_probability)
    assert long.tokens > 12
    assert small.score([], []) == []
    with pytest.raises(MacaronError, match="2 sources and 1 targets"):
        small.score(["a", "b"], ["a"])


def test_the_command(scorer: PairScorer, tmp_path: Path):
    sources, targets = lines("valid.de"), lines("valid.en")
    sources[3], targets[3] = "", ""
    targets[5] = "a " * 2000
    for name, texts in (("s", sources), ("t", targets)):
        (tmp_path / name).write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    command = ("score", MODEL, "--source", tmp_path / "s", "--target", tmp_path / "t", "--device", "cpu")
    done = macaron_text(*command)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    expected = scorer.score(sources, targets)
    assert [int(row[2]) for row in rows] == [each.tokens for each in expected]
    for column, values in ((0, map(_total, expected)), (1, (each.per_token for each in expected))):
        assert [float(row[column]) for row in rows] == pytest.approx(list(values), abs=1e-3, nan_ok=True)
    assert rows[3] == ["0.000000", "0.000000", "0"]
    assert rows[5][:2] == ["nan", "nan"]
    assert "1 pairs have more than 1024 tokens on a side and were not scored: lines 6" in done.stderr
    # Files of different length: what was there is written to a pipe, and no file is.
    (tmp_path / "t").write_text("one\ntwo\n", encoding="utf-8")
    for files, words in ((("s", "t"), "t ends after line 2, "), (("t", "s"), "t ends after line 2, ")):
        ask = ("--source", tmp_path / files[0], "--target", tmp_path / files[1])
        done = macaron_text("score", MODEL, *ask, "--device", "cpu", "--output", tmp_path / "out")
        assert done.returncode == 1
        assert words in done.stderr
        assert not (tmp_path / "out").exists()


def test_an_encoder_is_refused():
    done = macaron_text("score", FIXTURES / "classifier", "--source", __file__, "--target", __file__)
    assert done.returncode == 1
    assert "cannot translate" in done.stderr
