"""SentencePiece models as `tokenizers.Tokenizer` values. Reading one needs the package sentencepiece."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace

from macaron.errors import MacaronError
from macaron.limits import LARGEST_VOCABULARY
from macaron.text.vocabulary import UNK

#: Bytes of a file: 32,000 pieces have less than one megabyte.
LARGEST = 64 << 20
#: The score of one letter of a piece that this side of the translation does not use: any other way to write is better.
UNUSED = -1e6
_UNIGRAM = 1


def read_sentencepiece(path: Path) -> Any:
    """The message in a ``.spm`` file, which is one of a model of the kind ``unigram``."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    except ImportError:
        raise MacaronError("a MarianMT folder needs sentencepiece: pip install 'macaron-net[marian]'") from None
    if not path.is_file():
        raise MacaronError(f"{path}: no such file. A MarianMT folder has source.spm, target.spm and vocab.json.")
    if path.stat().st_size > LARGEST:
        raise MacaronError(f"{path}: larger than {LARGEST >> 20} MB")
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError:
        raise MacaronError(f"{path}: not a SentencePiece model, or damaged. Copy the folder again.") from None
    if model.trainer_spec.model_type != _UNIGRAM:
        raise MacaronError(f"{path}: a SentencePiece model of another kind than unigram, which is not supported")
    if model.trainer_spec.byte_fallback:
        raise MacaronError(f"{path}: byte_fallback is not supported")
    if not 0 < len(model.pieces) <= LARGEST_VOCABULARY:
        raise MacaronError(f"{path}: {len(model.pieces):,} pieces")
    return model


def unigram(model: Any, names: Sequence[str]) -> Tokenizer:
    """The tokenizer of a model whose pieces have other numbers: those of ``names``, special tokens first.

    Names that are no pieces of the model are never used, as long as there is another way to write a text. (Letters
    that the model lacks keep the entry that the other side has for them, as with transformers; only there, several such
    letters in a row are one unknown token.)
    """
    # All that 32 bits hold; `tokenizers` reads numbers of more digits back inexactly.
    scores = {each.piece: round(each.score, 6) for each in model.pieces}
    entries = [
        (name, scores.get(name, UNUSED * len(name)) if index > UNK else UNUSED * len(name))
        for index, name in enumerate(names)
    ]
    made, given = Tokenizer(Unigram(entries, UNK, False)), model.normalizer_spec
    steps = [normalizers.Precompiled(given.precompiled_charsmap)] if given.precompiled_charsmap else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    scheme = "always" if given.add_dummy_prefix else "never"
    made.pre_tokenizer = Metaspace(prepend_scheme=scheme)
    made.decoder = MetaspaceDecoder(prepend_scheme=scheme)
    return made
