"""Subword models as `tokenizers.Tokenizer` values: trained, or read from a fairseq dictionary and BPE codes.

They split *prepared* text (see `macaron.text.pipeline`); special tokens hold the first ids. Nothing is added
around a sentence here: the tokenizer class does that.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import BPEDecoder, ByteFallback, Decoder
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, CharDelimiterSplit, Split
from tokenizers.pre_tokenizers import Sequence as Steps
from tokenizers.trainers import BpeTrainer

from macaron.errors import MacaronError, require
from macaron.text.pipeline import MOSES_SETTINGS, Pipeline, PipelineName, Side
from macaron.text.vocabulary import (
    COMPLETE_SIZE,
    CONTINUED,
    PRINTABLE,
    SPACE_END,
    UNK,
    WORD_END,
    TokenizerKind,
    bpe_symbol,
    byte_tokens,
    check_size,
    read_codes,
    read_dictionary,
    specials,
    with_tags,
)

#: Byte-level BPE merges inside these matches only. A word takes the space before it, its accents and inner
#: apostrophes along; digits stand alone, so that an unseen number is not an unseen word.
RAW_PATTERN = (
    r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*"  # words: " don't"
    r"| ?\p{N}"  # one digit
    r"| ?[^\s\p{L}\p{M}\p{N}]+"  # punctuation and symbols
    r"|\s+(?!\S)|\s+"  # white space, leaving its last character to the word that follows
)


def fairseq_backend(
    dict_path: str | Path,
    codes: str | Path | None = None,
    *,
    pipeline: PipelineName = "spaces",
    kind: TokenizerKind = "translation",
    pad_to_multiple: int = 1,
    **settings: Any,
) -> tuple[Tokenizer, dict[str, Any]]:
    """The subword model and the settings of a tokenizer of a fairseq ``dict.txt`` and, for plain words, its BPE codes.

    With codes, words are split exactly as subword-nmt does. Without, they are looked up unchanged (``foo@@ bar``), and
    decoding joins at ``@@``. Encoders get the reference's segments: 1 for the first sentence and for padding, 0 for
    the second.
    """
    settings.setdefault("normalize", False)  # the usual IWSLT14 data was not
    tokens = read_dictionary(dict_path, kind, pad_to_multiple)
    if pipeline == "raw":
        raise MacaronError(f"{dict_path}: a dictionary holds words, not bytes. Choose pipeline 'moses' or 'spaces'.")
    if codes is not None:
        backend = dictionary_bpe(tokens, read_codes(codes), kind)
        settings["dictionary_size"] = len(tokens)
    elif pipeline == "moses" and any(token.endswith(CONTINUED) for token in tokens):
        raise MacaronError(f"{dict_path} holds pieces of words ('{CONTINUED}'): plain text needs the BPE codes as well")
    else:
        vocabulary = {token: index for index, token in enumerate(tokens)}
        backend = _word_tokenizer(WordLevel(vocabulary, unk_token=specials(kind)[UNK]), None, kind)
    if kind == "encoder":
        settings.setdefault("segments", (1, 0))
    return backend, {"kind": kind, "pipeline": pipeline, **settings}


def trained_backend(
    lines: Iterable[str],
    vocab_size: int,
    *,
    target_lines: Iterable[str] = (),
    pipeline: PipelineName = "raw",
    kind: TokenizerKind = "translation",
    prepared: bool = False,
    pad_to_multiple: int = 1,
    **settings: Any,
) -> tuple[Tokenizer, dict[str, Any]]:
    """Train a joint subword vocabulary on lines of text; the same lines give the same tokenizer.

    No character of new text is lost: with ``raw`` all are bytes; otherwise letters that the training text lacks are
    spelled in bytes, or, in a vocabulary of less than 1000 entries, which has no room for these, come back as
    ``<unk>``. (``moses`` itself drops ASCII's control characters.)

    :param lines: plain text of the source side, or of both; or prepared text
    :param vocab_size: special tokens included
    :param pad_to_multiple: pad the vocabulary to a multiple of this with entries that no text reaches
    :returns: the subword model and the tokenizer's settings
    """
    require(not isinstance(lines, str), f"expected lines of text, not {lines!r} alone")
    text = Pipeline(pipeline, **{name: settings[name] for name in MOSES_SETTINGS if name in settings})
    both: tuple[tuple[Side, Iterable[str]], ...] = (("source", lines), ("target", target_lines))
    stream = (line if prepared else text.encode(line, side) for side, given in both for line in given)
    train_bpe = train_byte_bpe if pipeline == "raw" else train_word_bpe
    if pipeline != "raw" and vocab_size < COMPLETE_SIZE:
        settings.setdefault("show_unknown", True)
    tags = settings.get("tags", ())
    backend = with_tags(train_bpe(stream, vocab_size - len(tags), kind), tags, pad_to_multiple)
    return backend, {"kind": kind, "pipeline": pipeline, **settings}


def learned_bpe(lines: Iterable[str], split: Any, **options: Any) -> Tokenizer:
    """The BPE that the trainer of `tokenizers` learns inside the pieces of a splitting step, with these options."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.train_from_iterator(lines, BpeTrainer(min_frequency=2, show_progress=False, **options))
    return tokenizer


def train_byte_bpe(lines: Iterable[str], vocab_size: int, kind: TokenizerKind = "translation") -> Tokenizer:
    """Train a byte-level BPE on prepared lines of the ``raw`` pipeline; a small corpus may hold fewer merges."""
    check_size(vocab_size, True, kind)
    split = Steps([Split(Regex(RAW_PATTERN), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    names, alphabet = added_specials(kind), ByteLevel.alphabet()
    tokenizer = learned_bpe(lines, split, vocab_size=vocab_size, special_tokens=names, initial_alphabet=alphabet)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def train_word_bpe(lines: Iterable[str], vocab_size: int, kind: TokenizerKind) -> Tokenizer:
    """Train a BPE inside words on prepared lines of space-separated words.

    The trainer of `tokenizers` numbers letters at the end of a word in random order, which decides ties between
    merges: two runs would differ. So it is given single letters of their own for these, renamed afterwards.
    """
    check_size(vocab_size, False, kind)
    complete = vocab_size >= COMPLETE_SIZE
    trained = learned_bpe(
        map(_mark_word_ends, lines),
        CharDelimiterSplit(" "),
        vocab_size=vocab_size,
        special_tokens=[*specials(kind), *(byte_tokens() if complete else ())],  # they get the first ids
        initial_alphabet=[*PRINTABLE, *map(_copy, PRINTABLE)] if complete else [],
    )
    content = json.loads(trained.to_str())["model"]
    model = BPE(
        vocab={_unmark(symbol): index for symbol, index in content["vocab"].items()},
        merges=[(_unmark(left), _unmark(right)) for left, right in content["merges"]],
        unk_token=specials(kind)[UNK],
        end_of_word_suffix=SPACE_END,
        byte_fallback=complete,
    )
    # ByteFallback is all that decoding needs: the marks of word ends are spaces already.
    return _word_tokenizer(model, ByteFallback(), kind)


def dictionary_bpe(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], kind: TokenizerKind = "translation"
) -> Tokenizer:
    """Build the BPE that equals subword-nmt's ``apply-bpe`` followed by a look-up in a fairseq dictionary.

    A dictionary's ``foo@@`` is the BPE's ``foo``, its ``foo`` is ``foo</w>``. Symbols that the merges pass
    through but the dictionary lacks must exist in the BPE all the same: these *ghosts* get ids from
    ``len(tokens)`` on, and `macaron.text.vocabulary.ghost_ids` says what the dictionary makes of each.
    """
    symbols: dict[str, int] = {}
    for index, token in enumerate(tokens):
        symbol = token if index < len(specials(kind)) else bpe_symbol(token)
        if symbol in symbols:
            raise MacaronError(f"dictionary entries {tokens[symbols[symbol]]!r} and {token!r} mean the same piece")
        symbols[symbol] = index
    for left, right in merges:
        if left + right in specials(kind):
            raise MacaronError(f"the codes merge {left!r} and {right!r} to the name of a special token")
        for symbol in (left, right, left + right):
            symbols.setdefault(symbol, len(symbols))
    _warn_of_inversions(merges)
    model = BPE(vocab=symbols, merges=list(merges), unk_token=specials(kind)[UNK], end_of_word_suffix=WORD_END)
    return _word_tokenizer(model, BPEDecoder(suffix=WORD_END), kind)


def _word_tokenizer(model: BPE | WordLevel, decoder: Decoder | None, kind: TokenizerKind) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = CharDelimiterSplit(" ")
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(added_specials(kind))
    return tokenizer


#: Unicode's first two planes hold every living script; its last two are for private use and take their copy.
_COPIED, _COPY = 0x20000, 0xF0000
#: What a merge may not make: these names mean something else (the last begins those of bytes).
RESERVED = (*specials("encoder"), "<0x")


def _mark_word_ends(line: str) -> str:
    # Words that cannot be learned are left out.
    words = line.split(" ")
    if max(line, default="") >= chr(_COPIED):
        words = [word for word in words if max(word, default="") < chr(_COPIED)]
    if "<" in line:
        words = [word for word in words if not any(name in word for name in RESERVED)]
    return " ".join([word[:-1] + _copy(word[-1]) for word in words if word])


def _copy(letter: str) -> str:
    return chr(ord(letter) + _COPY)


def _unmark(symbol: str) -> str:
    last = ord(symbol[-1])
    return symbol[:-1] + chr(last - _COPY) + SPACE_END if last >= _COPY else symbol


def added_specials(kind: TokenizerKind) -> list[AddedToken]:
    """The special tokens of a kind of model as `tokenizers` wants them."""
    # <mask> takes the space before it along, as the word it stands for would.
    return [AddedToken(token, special=True, normalized=False, lstrip=token == "<mask>") for token in specials(kind)]


def _warn_of_inversions(merges: Sequence[tuple[str, str]]) -> None:
    # subword-nmt applies a merge everywhere in a word before it looks for the next one; `tokenizers` goes on with the
    # best pair at once. The two agree if no merge uses a symbol that a later merge can still make.
    last_made = {left + right: rank for rank, (left, right) in enumerate(merges)}
    used = ((symbol, rank) for rank, pair in enumerate(merges) for symbol in pair)
    symbol, rank = next((each for each in used if last_made.get(each[0], -1) > each[1]), ("", -1))
    if symbol:
        warnings.warn(
            f"the codes make {symbol!r} after merge {rank + 1} ({' '.join(merges[rank])}) has used it: words "
            f"with several {symbol!r} may be split differently from subword-nmt",
            stacklevel=3,
        )
