"""Translate a test set with a model, and score it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron.data.prepared import PreparedData, Split
from macaron.decode.search import translate_ids
from macaron.decode.settings import SearchSettings
from macaron.decode.translator import Translator, batches
from macaron.errors import MacaronError
from macaron.evaluate.scores import Evaluation, evaluate_text, evaluate_tokens
from macaron.models.translation import TranslationModel
from macaron.text.files import read_lines
from macaron.text.tokenizer import MacaronTokenizer


@dataclass(frozen=True)
class ScoredTranslations:
    """Translations of a test set and what they score."""

    translations: list[str]
    evaluation: Evaluation
    settings: SearchSettings

    def to_dict(self) -> dict[str, Any]:
        """For JSON: how it was searched, what it scored."""
        search = {"beam": self.settings.beam, "length_penalty": self.settings.length_penalty}
        return {"search": {**search, "max_length": self.settings.max_length}, **self.evaluation.to_dict()}


def evaluate_split(
    translator: Translator,
    data: PreparedData,
    split: Split,
    *,
    lower: bool = True,
    compound_split: bool = False,
    batch_tokens: int | None = None,
    **search: Any,
) -> ScoredTranslations:
    """Score a model on a split of a prepared folder.

    Where the split's text is plain, translations are plain text and all scores are given; where it was given as Moses
    tokens, so are the translations, and the paper's BLEU is the only score that is defined.
    """
    if data.tokenizer_fingerprint != translator.tokenizer.fingerprint():
        raise MacaronError(
            f"{data.folder} was prepared with another tokenizer than this model's: score the model on plain text "
            "instead, with --source and --reference"
        )
    settings = SearchSettings(**{**translator.defaults, **search})
    state = data.text_state(split)
    store = data.pairs(split).source
    sources = [store[i].tolist() for i in range(len(store))]
    translations = translate_all(
        translator.model, translator.tokenizer, sources, settings, batch_tokens or translator.batch_tokens, state
    )
    references = data.text(split, data.target_lang)
    evaluation = (
        evaluate_tokens(translations, references, lower=lower, compound_split=compound_split)
        if state == "moses"
        else evaluate_text(translations, references, data.target_lang, lower=lower, compound_split=compound_split)
    )
    return ScoredTranslations(translations, evaluation, settings)


def evaluate_files(
    translator: Translator,
    source: Path,
    reference: Path,
    language: str,
    *,
    lower: bool = True,
    compound_split: bool = False,
    **search: Any,
) -> ScoredTranslations:
    """Score a model on two plain-text files."""
    lines, references = list(read_lines(source)), list(read_lines(reference))
    if len(lines) != len(references):
        raise MacaronError(f"{source} has {len(lines)} lines, {reference} has {len(references)}: they are not aligned")
    if not lines:
        raise MacaronError(f"{source} is empty")
    translations = [_one_line(line) for line in translator.translate(lines, **search)]
    evaluation = evaluate_text(translations, references, language, lower=lower, compound_split=compound_split)
    search.pop("batch_tokens", None)
    return ScoredTranslations(translations, evaluation, SearchSettings(**{**translator.defaults, **search}))


def translate_all(
    model: TranslationModel,
    tokenizer: MacaronTokenizer,
    sources: list[list[int]],
    settings: SearchSettings,
    batch_tokens: int,
    state: Any = "raw",
) -> list[str]:
    """The best translation of each source (token ids with their end), as text of the given state.

    An empty source has an empty translation; a long one is translated whole.
    """
    best: list[list[int]] = [[] for _ in sources]
    there = [i for i, source in enumerate(sources) if len(source) > 1]  # more than its end
    for batch in batches([len(sources[i]) for i in there], batch_tokens):
        numbers = [there[place] for place in batch]
        found = translate_ids(model, [sources[i] for i in numbers], settings)
        for i, hypotheses in zip(numbers, found, strict=True):
            best[i] = list(hypotheses[0].tokens)
    return [_one_line(line) for line in tokenizer.decode_lines(best, state=state)]


def _one_line(text: str) -> str:
    """What is scored is what a file of translations, one a line, can hold."""
    return text.replace("\r", " ").replace("\n", " ")
