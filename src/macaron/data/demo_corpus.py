"""The demo's corpus and its baseline: 100,000 German-English pairs from a grammar, shipped as one compressed file.

``tools/make_demo_corpus.py`` writes the archive. It holds train, valid, test and novel (.de and .en; novel sentences
combine words and constructions that the other splits never combine) and the dictionary of the word-by-word baseline.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from macaron.data.prepare.archive import members
from macaron.errors import MacaronError
from macaron.files import atomic_folder

ARCHIVE = Path(__file__).with_name("demo_corpus.tar.bz2")
_SPLITS = ("train", "valid", "test", "novel")
FILES = tuple(f"{split}.{language}" for split in _SPLITS for language in ("de", "en"))
DICTIONARY = "dictionary.json"
_TOKEN = re.compile(r"[\w'-]+|,")


def write_demo_corpus(folder: Path) -> bool:
    """Write the corpus as train.de, train.en, valid.de ... into a folder of its own, one sentence per line.

    :return: False if the corpus, or a shortened one (the first lines of every file), was there already
    """
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if foreign := sorted(found - set(FILES)):
        raise MacaronError(f"{folder} also holds other files ({foreign[0]}): give the corpus a folder of its own")
    corpus = {name: _contents()[name] for name in FILES}
    if found == set(FILES):
        texts = {name: (folder / name).read_bytes() for name in FILES}
        aligned = all(texts[f"{split}.de"].count(b"\n") == texts[f"{split}.en"].count(b"\n") for split in _SPLITS)
        if not aligned or not all(corpus[name].startswith(texts[name]) for name in FILES):
            raise MacaronError(
                f"{folder} is not the demo corpus of this version: "
                "remove it and what was made from it, or choose another folder"
            )
        return False
    with atomic_folder(folder) as partial:
        for name, content in corpus.items():
            (partial / name).write_bytes(content)
    return True


class WordByWord:
    """The demo's baseline: each German word is replaced by its usual English words; the order stays German.

    :param dictionary: English words by German word, learned by ``tools/demo_grammar/baseline.py``; there may be none
    """

    def __init__(self, dictionary: Mapping[str, Iterable[str]]) -> None:
        self.dictionary = {word: tuple(translation) for word, translation in dictionary.items()}

    @classmethod
    def load(cls) -> "WordByWord":
        """The baseline that was learned from the demo's training pairs."""
        return cls(json.loads(_contents()[DICTIONARY]))

    def translate(self, sentence: str) -> str:
        """Translate a sentence word by word; unknown words are copied."""
        tokens = words_and_commas(sentence)
        if tokens and tokens[0] not in self.dictionary:  # a noun, or unknown: it keeps its capital
            tokens = words_and_commas(sentence, lower_first=False)
        words = [word for token in tokens for word in self.dictionary.get(token, (token,))]
        return sentence_text(words, sentence[-1]) if words else sentence


def words_and_commas(sentence: str, *, lower_first: bool = True) -> list[str]:
    """The words and commas of a sentence.

    :param lower_first: lower the initial letter of the sentence, since most words have no capital elsewhere
    """
    tokens = _TOKEN.findall(sentence)
    if tokens and lower_first and tokens[0] != "I":
        tokens[0] = tokens[0][0].lower() + tokens[0][1:]
    return tokens


def sentence_text(words: Sequence[str], mark: str) -> str:
    """Join words and commas (never two, never before the final mark), capitalise, and append the mark."""
    text = " ".join(words).replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark


@cache
def _contents() -> dict[str, bytes]:
    """The files of the archive by name, kept in memory (10 MB): decompressing them takes a second."""
    return {name: file.read() for name, file in members(ARCHIVE)}
