"""Scores of plain text."""

import json

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.evaluate.scores import chrf, moses_tokens, paper_bleu, sacre_bleu
from macaron.evaluate.stored import Evaluation

texts = st.lists(st.sampled_from(["Das", "ist", "Test,", "nicht", "wahr?", "1,000.5", "und-so"]), max_size=10).map(
    " ".join
)
corpora = st.lists(st.tuples(texts, texts), min_size=1, max_size=8)

HYPOTHESES = ['He said: "The state-of-the-art car is red."', "I don't know.", "Where are you going today?"]
REFERENCES = [
    'He said: "The state-of-the-art car was red."',
    "I do not know.",
    "Where are you going to today?",
]


@given(corpora, st.booleans())
@settings(max_examples=100, deadline=None)
def test_statistics_of_sacrebleu_give_its_score(corpus: list[tuple[str, str]], lower: bool) -> None:
    hypotheses, references = [h for h, _ in corpus], [r for _, r in corpus]
    expected = sacrebleu.BLEU(lowercase=lower).corpus_score(hypotheses, [references]).score
    assert sacre_bleu(hypotheses, references, lower=lower).statistics.score() == pytest.approx(expected, abs=1e-9)


@given(corpora)
@settings(max_examples=100, deadline=None)
def test_statistics_of_chrf_give_its_score(corpus: list[tuple[str, str]]) -> None:
    hypotheses, references = [h for h, _ in corpus], [r for _, r in corpus]
    score = chrf(hypotheses, references)
    assert score.statistics.score() == pytest.approx(score.score, abs=1e-9)


def test_signatures_are_those_of_sacrebleu() -> None:
    assert "tok:13a|smooth:exp|version:" in sacre_bleu(HYPOTHESES, REFERENCES).definition
    assert "nc:6|nw:0" in chrf(HYPOTHESES, REFERENCES).definition


def test_moses_tokens() -> None:
    assert moses_tokens("Er sagt: „Ja, gut.“", "de") == "Er sagt : &quot; Ja , gut . &quot;"
    assert moses_tokens("I don't know.", "en") == "I don &apos;t know ."


def test_paper_bleu_ignores_spacing_and_on_request_case() -> None:
    spaced = [line.upper().replace(".", " .") for line in REFERENCES]
    assert paper_bleu(spaced, REFERENCES, "en", lower=True, compound_split=False).score == pytest.approx(100)
    assert paper_bleu(spaced, REFERENCES, "en", lower=False, compound_split=False).score < 50


def test_compound_split_counts_the_parts() -> None:
    whole = paper_bleu(HYPOTHESES, REFERENCES, "en", lower=True, compound_split=False)
    parts = paper_bleu(HYPOTHESES, REFERENCES, "en", lower=True, compound_split=True)
    assert parts.parts["reference_length"] == whole.parts["reference_length"] + 6
    assert "compound-split yes" in parts.definition


def test_an_evaluation_is_json_with_definitions_and_intervals() -> None:
    paper = paper_bleu(HYPOTHESES, REFERENCES, "en", lower=True, compound_split=False)
    scores = (sacre_bleu(HYPOTHESES, REFERENCES), chrf(HYPOTHESES, REFERENCES), paper)
    result = Evaluation(HYPOTHESES, {"beam": 4}, scores)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["sentences"] == 3
    assert [entry["metric"] for entry in data["scores"]] == ["sacreBLEU", "chrF2", "tokenised BLEU"]
    for entry in data["scores"]:
        assert entry["definition"]
        assert 0 <= entry["interval"]["low"] <= entry["interval"]["high"] <= 100 + 1e-9
    assert len(str(result).splitlines()) == 4
