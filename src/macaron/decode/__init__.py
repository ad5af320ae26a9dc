"""Decoding: beam search, sampling, and the Translator. Names are imported when they are first used."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.decode.documents import translate_document as translate_document
    from macaron.decode.forced import PairScore as PairScore
    from macaron.decode.forced import PairScorer as PairScorer
    from macaron.decode.search import translate_ids as translate_ids
    from macaron.decode.settings import Hypothesis as Hypothesis
    from macaron.decode.settings import Sampling as Sampling
    from macaron.decode.settings import SearchSettings as SearchSettings
    from macaron.decode.translator import Translator as Translator

__getattr__ = lazy(__name__, __file__)
