"""Tokenised BLEU against recorded numbers and against sacreBLEU."""

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.evaluate.scores import corpus_bleu, split_compounds, tokenised_bleu

CASES = json.loads((Path(__file__).parents[1] / "golden" / "bleu.json").read_text())
UNKNOWN, END = 3, -1

lines = st.lists(st.sampled_from("abcde"), max_size=12).map(" ".join)
corpora = st.lists(st.tuples(lines, lines), min_size=1, max_size=12)


@pytest.mark.golden
@pytest.mark.parametrize("case", CASES)
def test_equals_the_numbers_recorded_from_the_authors_code(case: dict[str, Any]) -> None:
    # Habits of their scorer: an unknown word of a reference never matches, and an empty line counts as one token, since
    # it strips the end of sentence from a line, but never its last token.
    references = [[object() if token == UNKNOWN else token for token in line] or [END] for line in case["refs"]]
    bleu = corpus_bleu([line or [END] for line in case["hyps"]], references)
    assert bleu.score == pytest.approx(case["score"], abs=1e-9)
    assert bleu.parts["precisions"] == pytest.approx(case["precision"], abs=1e-12)
    assert bleu.parts["brevity_penalty"] == pytest.approx(case["bp"], abs=1e-12)
    assert (bleu.parts["hypothesis_length"], bleu.parts["reference_length"]) == (case["predlen"], case["reflen"])


@given(corpora)
@settings(max_examples=200, deadline=None)
def test_equals_sacrebleu_without_tokenisation_and_smoothing(corpus: list[tuple[str, str]]) -> None:
    hypotheses, references = [h for h, _ in corpus], [r for _, r in corpus]
    theirs = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    expected = theirs.corpus_score(hypotheses, [references]).score
    assert tokenised_bleu(hypotheses, references, lower=False).score == pytest.approx(expected, abs=1e-9)


def test_an_order_without_a_match_gives_zero() -> None:
    assert tokenised_bleu(["a b c d e"], ["a b c x d e"], lower=False).score == 0


def test_case_matters_only_when_asked() -> None:
    hypotheses, references = ["The Cat sat on the mat"], ["the cat sat on the mat"]
    assert tokenised_bleu(hypotheses, references, lower=True).score == pytest.approx(100)
    assert tokenised_bleu(hypotheses, references, lower=False).score < 100


def test_empty_lines_have_no_tokens() -> None:
    bleu = corpus_bleu([[], list("abcde"), []], [[], list("abcde"), ["x"]])
    assert (bleu.parts["hypothesis_length"], bleu.parts["reference_length"]) == (5, 6)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("ä-ö-ü", "ä ##AT##-##AT## ö ##AT##-##AT## ü"),
        ("a - b", "a - b"),
        ("-a b-", "-a b-"),
        ("a--b", "a ##AT##-##AT## -b"),
    ],
)
def test_compounds_are_split_as_by_the_customary_command(line: str, expected: str) -> None:
    assert split_compounds(line) == expected


def test_the_definition_names_every_choice() -> None:
    bleu = tokenised_bleu(["a b c d"], ["a b c d"], lower=True, compound_split=True)
    assert bleu.definition == "tokenised BLEU (case-insensitive, tokens as given, compound-split yes)"
    assert json.loads(json.dumps(bleu.to_dict()))["hypothesis_length"] == 4


def test_different_lengths_are_refused() -> None:
    with pytest.raises(MacaronError, match="2 translations but 1 references"):
        tokenised_bleu(["a", "b"], ["a"], lower=False)
    with pytest.raises(MacaronError, match="no lines"):
        tokenised_bleu([], [], lower=False)
    with pytest.raises(MacaronError, match="single string"):
        tokenised_bleu("a b", "a b", lower=False)
