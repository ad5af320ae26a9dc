"""SentencePiece models as `tokenizers.Tokenizer` values.

A ``.spm`` file is a message of protocol buffers, whose few fields are read here: nothing has to be installed, and
nothing but numbers and strings is taken from the file.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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
_BYTE = 6  # the type of pieces that spell unknown letters in bytes


@dataclass(frozen=True)
class SentencePieces:
    """The pieces with their scores, and how text is normalised."""

    scores: dict[str, float]
    characters: bytes
    prefix: bool


def read_sentencepiece(path: Path) -> SentencePieces:
    """Read a model of the kind ``unigram``."""
    if not path.is_file():
        raise MacaronError(f"{path}: no such file. A MarianMT folder has source.spm, target.spm and vocab.json.")
    if path.stat().st_size > LARGEST:
        raise MacaronError(f"{path}: larger than {LARGEST >> 20} MB")
    scores: dict[str, float] = {}
    characters, kind, prefix = b"", _UNIGRAM, True
    try:
        for field, value in _fields(path.read_bytes()):
            if field == 1:
                piece = dict(_fields(_bytes(value)))
                if piece.get(3) == _BYTE:
                    raise MacaronError(f"{path}: byte_fallback is not supported")
                score = struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0]
                # All that 32 bits hold; `tokenizers` reads numbers of more digits back inexactly.
                scores[_bytes(piece[1]).decode()] = round(score, 6)
            elif field == 2:
                kind = dict(_fields(_bytes(value))).get(3, _UNIGRAM)  # type: ignore[assignment]
            elif field == 3:
                given = dict(_fields(_bytes(value)))
                characters, prefix = _bytes(given.get(2, b"")), given.get(3, 1) == 1
    except (ValueError, KeyError, IndexError, struct.error):
        raise MacaronError(f"{path}: not a SentencePiece model, or damaged. Copy the folder again.") from None
    if kind != _UNIGRAM:
        raise MacaronError(f"{path}: a SentencePiece model of another kind than unigram, which is not supported")
    if not 0 < len(scores) <= LARGEST_VOCABULARY:
        raise MacaronError(f"{path}: {len(scores):,} pieces")
    return SentencePieces(scores, characters, prefix)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and an integer or bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number is too long")

    while place < len(data):
        field, form = divmod(varint(), 8)
        if form == 0:
            yield field, varint()
            continue
        size = {1: 8, 5: 4}.get(form) or (varint() if form == 2 else -1)
        if size < 0 or place + size > len(data):
            raise ValueError("a field is cut off")
        yield field, data[place : place + size]
        place += size


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("bytes were expected")
    return value


def unigram(model: SentencePieces, names: Sequence[str]) -> Tokenizer:
    """The tokenizer of a model whose pieces have other numbers: those of ``names``, special tokens first.

    Names that are no pieces of the model are never used, as long as there is another way to write a text. (Letters
    that the model lacks keep the entry that the other side has for them, as with transformers; only there, several such
    letters in a row are one unknown token.)
    """
    entries = [
        (name, model.scores.get(name, UNUSED * len(name)) if index > UNK else UNUSED * len(name))
        for index, name in enumerate(names)
    ]
    made = Tokenizer(Unigram(entries, UNK, False))
    steps = [normalizers.Precompiled(model.characters)] if model.characters else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    scheme = "always" if model.prefix else "never"
    made.pre_tokenizer = Metaspace(prepend_scheme=scheme)
    made.decoder = MetaspaceDecoder(prepend_scheme=scheme)
    return made
