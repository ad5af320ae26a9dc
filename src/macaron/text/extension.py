"""A tokenizer with more subwords: those of another are kept with their ids, new ones follow.

The words of a new corpus are split by the old merges, and the most frequent pairs of pieces are merged further. All old
merges come first, and no new one makes an old piece: text is split as before, but for new pieces.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, repeat
from typing import Any

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import CharDelimiterSplit

from macaron.errors import require
from macaron.text.subword import RESERVED, learned_bpe
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import FILLER, UNK, check_tag, fillers, tag_tokens

#: Words in a line of text for the trainer.
WORDS_PER_LINE = 512
#: To the trainer, old pieces are letters: those of Unicode's last two planes, which are for private use.
_LETTERS, _MAX_PIECES = 0xF0000, 0x20000
#: Words that are split at a time.
_AT_A_TIME = 10_000
Pairs = list[tuple[str, str]]


def extended(
    tokenizer: MacaronTokenizer, words: Mapping[str, int], count: int, multiple: int = 1, tags: Sequence[str] = ()
) -> MacaronTokenizer:
    """The tokenizer with up to ``count`` more subwords of counted words of prepared text, and with these tags.

    Vocabularies of words also take letters that they lack, and that occur twice. The size becomes a multiple.
    """
    content = _content(tokenizer)
    model, size = content["model"], len(tokenizer)
    require(model["type"] == "BPE", "the tokenizer looks words up in a dictionary: there are no subwords to extend")
    vocabulary = {**model["vocab"], **{token["content"]: token["id"] for token in content["added_tokens"]}}
    symbols = sorted(vocabulary, key=vocabulary.__getitem__)
    old, ghosts = symbols[:size], symbols[size:]  # ghosts have no id that the model knows
    letters = _new_letters(words, symbols, model)[:count] if tokenizer.pipeline != "raw" else []
    known = [*old, *letters]
    require(len(known) <= _MAX_PIECES, f"a vocabulary of {len(known):,} entries is too large to be extended")
    fresh = [tag for tag in tags if tag not in tokenizer.tags]
    for tag in fresh:
        check_tag(tag)
        require(tag not in vocabulary, f"the vocabulary has {tag!r}: choose another name for this tag")
    model["vocab"] = {symbol: index for index, symbol in enumerate([*known, *ghosts])}
    split = Tokenizer.from_str(json.dumps(content))
    learned: Pairs = []
    if count:
        sequences = _split(split, words, len(known), tokenizer.pipeline == "raw")
        size = len(set(chain.from_iterable(sequences))) + 2 * count
        trained = learned_bpe(repeated_words(sequences, raw=False), CharDelimiterSplit(" "), vocab_size=size)
        learned = _merges(json.loads(trained.to_str()))
    merges, new = _chosen(learned, known, {*known, *ghosts}, count - len(letters))
    made = [*known, *new, *fresh]
    made += fillers(len(made), multiple, first=sum(symbol.startswith(FILLER) for symbol in old))
    model["vocab"] = {symbol: index for index, symbol in enumerate([*made, *ghosts])}
    model["merges"] = [*model["merges"], *merges]
    known_to_model = None if tokenizer.dictionary_size is None else len(made)
    backend = Tokenizer.from_str(json.dumps(content))
    backend.add_special_tokens(tag_tokens(fresh))
    return tokenizer.changed(backend, dictionary_size=known_to_model, tags=[*tokenizer.tags, *fresh])


def extends(new: MacaronTokenizer, old: MacaronTokenizer) -> bool:
    """Whether a tokenizer is another one, or its extension; languages may differ."""
    same = ("kind", "pipeline", *(("lower", "normalize") if old.pipeline == "moses" else ()))
    ours, theirs = _content(new), _content(old)
    structure = ("type", "unk_token", "end_of_word_suffix", "byte_fallback")
    vocabulary, merges = new.get_vocab(), _merges(theirs)
    return (
        all(getattr(new, name) == getattr(old, name) for name in same)
        and all(ours["model"].get(name) == theirs["model"].get(name) for name in structure)
        and ours["pre_tokenizer"] == theirs["pre_tokenizer"]
        and all(vocabulary.get(token) == index for token, index in old.get_vocab().items())
        and _merges(ours)[: len(merges)] == merges
        and (len(new) > len(old) or len(_merges(ours)) == len(merges))
    )


def origins(old: MacaronTokenizer, new: MacaronTokenizer) -> dict[int, list[int]]:
    """For every id of an extension that the old tokenizer lacks, the old ids that stand for it: of its merges, or of
    its bytes. A tag has none, and neither has an entry that no text reaches.
    """
    parts = {token: [index] for token, index in old.get_vocab().items()}
    content, vocabulary = _content(new), new.get_vocab()
    for left, right in _merges(content):
        if left + right in vocabulary and left + right not in parts:
            parts[left + right] = [part for half in (left, right) for part in parts.get(half) or _spelled(half, parts)]
    added = {token: index for token, index in vocabulary.items() if index >= len(old)}
    return {
        index: parts.get(token) or ([] if token.startswith(FILLER) or token in new.tags else _spelled(token, parts))
        for token, index in added.items()
    }


def repeated_words(counts: Mapping[str, int], raw: bool) -> Iterator[str]:
    """Lines in which every word occurs as often as it was counted: `tokenizers` takes no counts, only text."""
    words = chain.from_iterable(repeat(word, times) for word, times in counts.items())
    while line := " ".join(islice(words, WORDS_PER_LINE)):
        yield f" {line}" if raw else line  # in raw text a word has its space in front


def _content(tokenizer: MacaronTokenizer) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return content


def _merges(content: dict[str, Any]) -> Pairs:
    return [(left, right) for left, right in content["model"].get("merges", ())]


def _new_letters(words: Mapping[str, int], symbols: Sequence[str], model: dict[str, Any]) -> list[str]:
    # Inside a word and at its end, the most frequent first.
    end, found = model["end_of_word_suffix"], Counter[str]()
    for word, times in words.items():
        for letter in (*word[:-1], word[-1] + end):
            found[letter] += times
    lacking = {letter: times for letter, times in found.items() if times > 1}.keys() - set(symbols)
    return sorted(lacking, key=lambda letter: (-found[letter], letter))


def _split(backend: Tokenizer, words: Mapping[str, int], known: int, raw: bool) -> Counter[str]:
    """Words as sequences of pieces, each a private letter, with their counts, up to pieces that cannot be merged."""
    backend.encode_special_tokens = True  # "</s>" in a text is text
    names = {index: symbol for symbol, index in backend.get_vocab().items()}
    letters = {i: chr(_LETTERS + i) for i in range(known) if i > UNK and not names[i].startswith("<0x")}
    found: Counter[str] = Counter()
    items = list(words.items())
    for start in range(0, len(items), _AT_A_TIME):
        part = items[start : start + _AT_A_TIME]
        texts = [f" {word}" if raw else word for word, _ in part]
        for encoding, (_, times) in zip(backend.encode_batch(texts, add_special_tokens=False), part, strict=True):
            pieces: list[tuple[int | None, str]] = [
                (word, letters.get(index, "")) for word, index in zip(encoding.word_ids, encoding.ids, strict=True)
            ]
            for _, group in groupby(pieces, key=lambda piece: (piece[0], piece[1] == "")):
                sequence = "".join(letter for _, letter in group)
                if len(sequence) > 1:
                    found[sequence] += times
    return found


def _chosen(merges: Pairs, known: Sequence[str], taken: set[str], count: int) -> tuple[Pairs, list[str]]:
    # Merges of private letters, each a piece by its number, as merges of pieces, and up to `count` new pieces. A piece
    # that exists is not made anew: text without a new one would be split differently.
    usable, chosen = set(known), []
    new: dict[str, None] = {}
    for pair in merges:
        left, right = ("".join(known[ord(letter) - _LETTERS] for letter in side) for side in pair)
        fine = left + right not in taken and not any(name in left + right for name in RESERVED)
        if not (fine and left in usable and right in usable):
            continue
        if left + right not in new and len(new) == count:
            break
        new.setdefault(left + right)
        usable.add(left + right)
        chosen.append((left, right))
    return chosen, list(new)


def _spelled(letter: str, ids: Mapping[str, list[int]]) -> list[int]:
    names = (f"<0x{byte:02X}>" for byte in letter.encode())
    return [ids[name][0] for name in names if name in ids] or [UNK]
