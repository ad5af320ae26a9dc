"""Decoding: beam search, sampling, and the Translator. Names are imported when they are first used."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.decode.documents import translate_document
    from macaron.decode.pair_scores import PairScore, PairScorer
    from macaron.decode.search import translate_ids
    from macaron.decode.settings import Hypothesis, Sampling, SearchSettings
    from macaron.decode.translator import Translator

__all__ = [
    "Hypothesis",
    "PairScore",
    "PairScorer",
    "Sampling",
    "SearchSettings",
    "Translator",
    "translate_document",
    "translate_ids",
]

__getattr__ = lazy(
    __name__,
    documents=["translate_document"],
    pair_scores=["PairScore", "PairScorer"],
    search=["translate_ids"],
    settings=["Hypothesis", "Sampling", "SearchSettings"],
    translator=["Translator"],
)
