"""The steps of ``macaron prepare`` for plain text, from files that are here to a folder complete but for its manifest.

1. Every text is streamed through the workers, which split it into sentences and tokenise it.
2. The subword vocabulary is learned, from a sample where the text is big.
3. The sentences are encoded into token stores; every so manieth document goes to the valid set.

Nothing here grows with the text but a list of its chunks, of 2 MB each.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from macaron.data.documents import TEXT_SPLITS, DocumentsWriter, documents_file
from macaron.data.documents_cleaning import (
    CHUNK_LINES,
    TEXT_RULES,
    CleanedText,
    TextChunk,
    TextCleaner,
    TextFile,
    TextRule,
    clean_text,
    text_chunks,
)
from macaron.data.documents_encoding import COUNT, EncodeText, HoldOut, TextPiece, count_text, encode_text
from macaron.data.encoding import count_words
from macaron.data.learning import learn_tokenizer
from macaron.data.prepared import FORMAT
from macaron.data.progress import Progress
from macaron.data.settings import TextSettings
from macaron.data.store import StoreWriter, id_dtype
from macaron.errors import MacaronError
from macaron.processes import Workers
from macaron.text.tokenizer import MacaronTokenizer


@dataclass
class Sentences:
    """The sentences of all texts, on disk, and where every chunk and every document lies among them."""

    text: Path
    counts: Path
    pieces: list[TextPiece] = field(default_factory=list)
    documents: int = 0
    sentences: int = 0
    lines: int = 0
    paragraphs: int = 0
    words: int = 0
    dropped: Counter[TextRule] = field(default_factory=Counter)
    files: list[dict[str, Any]] = field(default_factory=list)
    _open: bool = False  # the last document may go on

    def note(self, cleaned: CleanedText) -> None:
        """Add a chunk that has been written behind the others."""
        self.lines += cleaned.lines
        self.paragraphs += cleaned.paragraphs
        self.dropped.update(cleaned.dropped)
        if not cleaned.counts:
            self._open = self._open and not cleaned.closes
            return
        goes_on = self._open and not cleaned.opens
        last = self.pieces[-1] if self.pieces else TextPiece(self.text, self.counts, 0, 0, 0, 0, 0)
        self.pieces.append(
            TextPiece(
                self.text,
                self.counts,
                start=last.start + last.size,
                size=len(cleaned.text),
                first=last.first + last.parts,
                parts=len(cleaned.counts),
                document=self.documents - goes_on,
            )
        )
        self.documents += len(cleaned.counts) - goes_on
        self.sentences += sum(cleaned.counts)
        self.words += cleaned.words
        self._open = not cleaned.closes

    def totals(self) -> dict[str, int]:
        """What has been read and kept."""
        return {name: getattr(self, name) for name in ("documents", "paragraphs", "sentences", "words")}


class TextJob:
    """One run of ``macaron prepare`` for plain text, into a folder aside."""

    def __init__(
        self, recipe: TextSettings, folder: Path, workers: Workers, progress: Progress, chunk_lines: int | None = None
    ) -> None:
        self.recipe, self.folder, self.workers, self.progress = recipe, folder, workers, progress
        self.chunk_lines = chunk_lines or CHUNK_LINES
        self.work = folder / "work"

    def run(self, texts: Sequence[TextFile]) -> dict[str, Any]:
        """Do everything, and return what prepared.json is to say."""
        self.work.mkdir()
        sentences = self.clean(texts)
        self._check(sentences)
        hold_out = HoldOut(self.recipe.valid_every, sentences.documents)
        tokenizer, subwords = self.learn(sentences, hold_out)
        splits = self.encode(sentences, hold_out, tokenizer)
        subwords["of_sentences"] = splits["train"]["sentences"]
        shutil.rmtree(self.work)
        return {
            "format": FORMAT,
            "kind": "text",
            "lang": self.recipe.lang,
            "pipeline": self.recipe.pipeline,
            "vocab_size": len(tokenizer),
            "tokenizer_fingerprint": tokenizer.fingerprint(),
            "splits": splits,
            "cleaning": {
                **sentences.totals(),
                "dropped": {rule: sentences.dropped[rule] for rule in TEXT_RULES},
                "files": sentences.files,
            },
            "subwords": subwords,
        }

    def clean(self, texts: Sequence[TextFile]) -> Sentences:
        """Step 1: stream the texts through the workers into one file of sentences."""
        recipe = self.recipe
        sentences = Sentences(self.work / "sentences", self.work / "counts")
        cleaner = TextCleaner(recipe.lang, recipe.pipeline, recipe.lower, recipe.normalize, recipe.max_words)
        with (
            self.progress.step("splitting into sentences", "sentences") as step,
            sentences.text.open("wb") as text,
            sentences.counts.open("wb") as counts,
        ):
            for file in texts:
                before = sentences.totals()
                for cleaned in self.workers.map(clean_text, self._tasks(cleaner, file)):
                    text.write(cleaned.text)
                    counts.write(np.array(cleaned.counts, COUNT).tobytes())
                    sentences.note(cleaned)
                    step(sum(cleaned.counts))
                sizes = {name: total - before[name] for name, total in sentences.totals().items()}
                sentences.files.append({"file": str(file.path), "state": file.state, **sizes})
        return sentences

    def _tasks(self, cleaner: TextCleaner, file: TextFile) -> Iterator[tuple[TextCleaner, TextChunk]]:
        for chunk in text_chunks(file, self.chunk_lines):
            yield cleaner, chunk

    def _check(self, sentences: Sentences) -> None:
        """At least two documents are needed: one to train on, one to validate on."""
        names = ", ".join(file["file"] for file in sentences.files)  # few, where there is next to nothing in them
        if sentences.documents == 0:
            dropped = ", ".join(f"{count:,} {rule}" for rule, count in sentences.dropped.items() if count)
            raise MacaronError(
                f"{names}: nothing is left to train on: of {sentences.paragraphs:,} paragraphs everything was dropped "
                f"({dropped}). Look at the files, or loosen max_words in [data]."
            )
        if sentences.documents == 1:
            raise MacaronError(
                f"{names}: only one document in lines 1 to {sentences.lines:,}. There is none left to validate on, and "
                "no other to draw a wrong next sentence from. Put a blank line between documents, or give more files."
            )

    def learn(self, sentences: Sentences, hold_out: HoldOut) -> tuple[MacaronTokenizer, dict[str, int]]:
        """Step 2: learn the vocabulary from the documents to train on, and save the tokenizer."""
        with self.progress.step("counting words", "sentences") as step:
            words = count_words(self.workers, [(piece, hold_out) for piece in sentences.pieces], count_text)
            step(words.lines)
        languages = (self.recipe.lang, self.recipe.lang)
        tokenizer = learn_tokenizer(words, self.folder, self.recipe, languages, "encoder", self.progress)
        return tokenizer, {"learned_from_sentences": words.lines, "word_types": len(words.counts)}

    def encode(self, sentences: Sentences, hold_out: HoldOut, tokenizer: MacaronTokenizer) -> dict[str, dict[str, int]]:
        """Step 3: write the token stores and the documents of both splits, and return their sizes."""
        file = self.folder / "tokenizer" / "tokenizer.json"
        identity, dtype, raw = tokenizer.fingerprint(), id_dtype(len(tokenizer)), self.recipe.pipeline == "raw"
        tasks = (EncodeText(piece, hold_out, file, identity, dtype, raw) for piece in sentences.pieces)
        with ExitStack() as stack:
            step = stack.enter_context(self.progress.step("encoding", "sentences", sentences.sentences))
            writers = {
                split: (
                    stack.enter_context(StoreWriter(self.folder / split, len(tokenizer))),
                    stack.enter_context(DocumentsWriter(documents_file(self.folder, split))),
                )
                for split in TEXT_SPLITS
            }
            for encoded in self.workers.map(encode_text, tasks):
                for split, part in encoded.items():
                    store, documents = writers[split]
                    store.append_flat(part.ids, part.lengths)
                    documents.append(part.numbers, part.sizes)
                    step(len(part.lengths))
        return {
            split: {"documents": documents.documents, "sentences": store.sequences, "tokens": store.tokens}
            for split, (store, documents) in writers.items()
        }
