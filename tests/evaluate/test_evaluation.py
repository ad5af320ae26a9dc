"""Translating a whole test set: order, empty sentences, batches."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from macaron.decode.settings import Hypothesis, SearchSettings
from macaron.errors import MacaronError
from macaron.evaluate import paper_bleu, tokenised_bleu
from macaron.evaluate.evaluation import evaluate_lines, translate_all
from macaron.models import TranslationModel, preset
from macaron.text import MacaronTokenizer


def test_order_batches_and_empty_sources():
    tokenizer = MacaronTokenizer.train(["a b c d e f g"], 270)
    torch.manual_seed(0)
    config = preset(
        "macaron-tiny", vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=2, intermediate_size=32
    )
    model = TranslationModel(config).double()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(3.0)
    sources = tokenizer.encode_lines(["a b", "", "c d e f g", "g", "", "e f"])
    settings = SearchSettings(2, 1.0, 6)
    together = translate_all(model, tokenizer, sources, settings, 1000)
    assert together[1] == together[4] == ""
    assert len(set(together)) > 2
    assert translate_all(model, tokenizer, sources, settings, 1) == together
    assert [translate_all(model, tokenizer, [source], settings, 50)[0] for source in sources] == together
    assert translate_all(model, tokenizer, [], settings, 50) == []
    assert not any("\n" in line or "\r" in line for line in together)


def test_a_perfect_model_of_moses_tokens_scores_100():
    """Its own tokens are scored: detokenising lower-cased text and tokenising it again would lose full stops."""
    references = [
        "I was born in 1990. We moved to the U.S. in May.",
        "It's 5 p.m.",
        "Mr. Smith's dog - a poodle - barks!",
    ]
    tokenizer = MacaronTokenizer.train(
        [], 240, target_lines=references * 3, pipeline="moses", source_lang="de", target_lang="en", normalize=False
    )
    ids = tokenizer.encode_lines(references, side="target")
    made = tokenizer.decode_lines(ids, state="moses")
    wanted = [tokenizer.text_pipeline.encode(line, "target") for line in references]
    assert tokenised_bleu(made, wanted, lower=True).score == pytest.approx(100)
    plain = tokenizer.decode_lines(ids)
    assert paper_bleu(plain, references, "en", lower=True, compound_split=False).score < 100


class Parrot:
    """A translator that says the references, as its tokenizer writes them: perfect, but for their case."""

    tag = None

    def __init__(self, tokenizer: MacaronTokenizer, references: list[str]) -> None:
        self.tokenizer, self.settings = tokenizer, SearchSettings()
        self.ids = tokenizer.encode_lines(references, side="target", add_special_tokens=False)
        # What a recipe without decode.lower leaves in the model.
        self.model = SimpleNamespace(config=SimpleNamespace(evaluation={"lower": False, "compound_split": False}))

    def translate_nbest(self, lines: list[str], **options: Any) -> list[list[Hypothesis]]:
        texts = self.tokenizer.decode_lines(self.ids)
        return [[Hypothesis(text, 0.0, tuple(ids))] for text, ids in zip(texts, self.ids, strict=True)]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_cased_means_that_case_counts(lower: bool, normalize: bool):
    references = ["The house is near Berlin .", "We see THE houses here ."]
    tokenizer = MacaronTokenizer.train(
        [],
        240,
        target_lines=references * 3,
        pipeline="moses",
        source_lang="de",
        target_lang="en",
        lower=lower,
        normalize=normalize,
    )
    parrot: Any = Parrot(tokenizer, references)
    paper = evaluate_lines(parrot, ["a", "b"], references, "en").scores[-1]
    assert paper.score == pytest.approx(100)
    assert ("(cased," in paper.definition) == (not lower)
    assert ("moses tokens of normalised text," in paper.definition) == normalize
    if lower:
        with pytest.raises(MacaronError, match="cannot be cased"):
            evaluate_lines(parrot, ["a", "b"], references, "en", lower=False)
    else:
        parrot.ids = tokenizer.encode_lines([line.lower() for line in references], side="target")
        assert evaluate_lines(parrot, ["a", "b"], references, "en").scores[-1].score < 100


@pytest.mark.parametrize("said", [False, True])
def test_sacrebleu_without_case_where_the_recipe_says_so(said: bool):
    """decode.lower travels with the model; --cased and what a comparison asks for come first."""
    references = ["The house is near Berlin .", "We see THE houses here ."]
    tokenizer = MacaronTokenizer.train([], 300, target_lines=references * 3, pipeline="raw")
    parrot: Any = Parrot(tokenizer, references)
    parrot.model.config.evaluation["lower"] = said
    parrot.ids = tokenizer.encode_lines([line.lower() for line in references], side="target", add_special_tokens=False)

    def scored(**options: Any) -> tuple[str, float]:
        found = evaluate_lines(parrot, ["a", "b"], references, "en", **options)
        assert found.scores[0].metric == ("sacreBLEU (lc)" if found.definition.get("caseless") else "sacreBLEU")
        assert ("|case:lc|" in found.scores[0].definition) == ("caseless" in found.definition)
        return found.scores[0].metric, found.scores[0].score

    assert scored() == (scored(caseless=True) if said else scored(lower=False))
    assert scored(lower=False)[0] == "sacreBLEU"
    assert scored(lower=False)[1] < 60
    assert scored(caseless=True) == ("sacreBLEU (lc)", pytest.approx(100))
