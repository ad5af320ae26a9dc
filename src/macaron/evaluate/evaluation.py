"""Translate a test set with a model, and score it."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from macaron.data.prepared import PreparedData, Split
from macaron.decode.search import batches, translate_ids
from macaron.decode.settings import SearchSettings
from macaron.decode.translator import Translator
from macaron.errors import MacaronError
from macaron.evaluate.scores import chrf, paper_bleu, sacre_bleu, tokenised_bleu
from macaron.evaluate.stored import Evaluation
from macaron.files import one_line, read_lines
from macaron.models.translation import TranslationModel
from macaron.text.pipeline import Pipeline, State
from macaron.text.tokenizer import MacaronTokenizer


def evaluate_split(translator: Translator, data: PreparedData, split: Split, **options: Any) -> Evaluation:
    """Score a model on a split of a prepared folder, with the split's own tags unless the translator has one.

    The options are those of `evaluate_lines`.
    """
    state = data.text_state(split)
    if state == "moses" and translator.tokenizer.text_pipeline.name != "moses":
        raise MacaronError(
            f"the text of {data.folder} ({split}) is Moses tokens, which this model does not read: score it on plain "
            "text, with --source and --reference"
        )
    lines, references = data.text(split, data.source_lang), data.text(split, data.target_lang)
    if translator.tag is None and translator.tokenizer.tags:  # a model without tags translates the plain text
        options["tags"] = data.tags(split)
    return evaluate_lines(translator, lines, references, data.target_lang, state=state, **options)


def evaluate_files(translator: Translator, source: Path, reference: Path, language: str, **options: Any) -> Evaluation:
    """Score a model on two plain-text files; the options are those of `evaluate_lines`."""
    lines, references = list(read_lines(source)), list(read_lines(reference))
    if len(lines) != len(references):
        raise MacaronError(f"{source} has {len(lines)} lines, {reference} has {len(references)}: they are not aligned")
    if not lines:
        raise MacaronError(f"{source} is empty")
    return evaluate_lines(translator, lines, references, language, **options)


def evaluate_lines(
    translator: Translator,
    lines: list[str],
    references: list[str],
    language: str,
    *,
    state: State = "raw",
    lower: bool | None = None,
    compound_split: bool | None = None,
    caseless: bool | None = None,
    **search: Any,
) -> Evaluation:
    """Translate lines as `macaron translate` does, and score them.

    sacreBLEU and chrF are scores of plain text. The paper's BLEU is one of Moses tokens: a model that works on Moses
    tokens is scored on its own tokens, since detokenising and tokenising again would change them; for any other model
    both sides are tokenised here. Where the text is given as tokens (``state = "moses"``) it is the only score.

    :param lower: for the paper's BLEU, like ``compound_split``; default: the model's configuration; always true for
        models of lower-cased tokens
    :param caseless: sacreBLEU without case; default: for models of lower-cased tokens, and where the configuration says
        ``lower``, unless that is set to False here
    :param search: options of `Translator.translate_nbest`
    """
    said = translator.model.config.evaluation or {}
    pipeline = translator.tokenizer.text_pipeline
    if lower is False and lower_cases(pipeline):
        raise MacaronError(
            "this model works on lower-cased tokens, so its tokenised BLEU cannot be cased: leave out --cased"
        )
    if caseless is None:
        caseless = lower is not False and bool(said.get("lower", False))
    caseless = caseless or lower_cases(pipeline)
    lower = lower_cases(pipeline) or (said.get("lower", True) if lower is None else lower)
    compound_split = said.get("compound_split", False) if compound_split is None else compound_split
    found = [best[0] for best in translator.translate_nbest(lines, nbest=1, state=state, **search)]
    translations = [one_line(each.text) for each in found]
    if pipeline.name == "moses":
        made = translator.tokenizer.decode_lines([each.tokens for each in found], state="moses")
        wanted = [pipeline.encode(line, "target", state) for line in references]
        own = f"the model's moses tokens{' of normalised text' if pipeline.normalize else ''}"
        kind = "moses tokens as given" if state == "moses" else own
        paper = tokenised_bleu(made, wanted, lower=lower, compound_split=compound_split, tokens=kind)
    else:
        paper = paper_bleu(translations, references, language, lower=lower, compound_split=compound_split)
    scores = [paper]
    if state == "raw":
        scores = [sacre_bleu(translations, references, lower=caseless), chrf(translations, references), paper]
    usual = {name: getattr(translator.settings, name) for name in ("beam", "length_penalty", "max_length")}
    searched = {name: value if search.get(name) is None else search[name] for name, value in usual.items()}
    tags = search.get("tags") or [translator.tag] * len(lines)
    text = text_digest(lines, references, state, (translator.tokenizer.source_lang, language), tags)
    definition = {"lower": lower, "compound_split": compound_split, **({"caseless": True} if caseless else {})}
    return Evaluation(translations, searched, tuple(scores), definition, text)


def text_digest(
    lines: Sequence[str],
    references: Sequence[str],
    state: State,
    languages: Sequence[str | None],
    tags: Sequence[str | None] = (),
) -> str:
    """A digest of a test set: sources, references, whether they are tokens, the two languages, tags (if any)."""
    marks = [list(tags)] if any(tags) else []
    text = json.dumps([[list(lines), list(references)], state, list(languages), *marks])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def lower_cases(pipeline: Pipeline) -> bool:
    """Whether a pipeline lower-cases: then translations and references are compared in lower case."""
    return pipeline.name == "moses" and pipeline.lower


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
    words = [(i, source) for i, source in enumerate(sources) if len(source) > 1]  # more than </s>
    for batch in batches([len(source) for _, source in words], batch_tokens):
        found = translate_ids(model, [words[index][1] for index in batch], settings)
        for index, hypotheses in zip(batch, found, strict=True):
            best[words[index][0]] = list(hypotheses[0].tokens)
    return [one_line(line) for line in tokenizer.decode_lines(best, state=state)]
