"""The steps of ``macaron prepare``, from corpora that are here to a folder that is complete but for its manifest."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from macaron.data import duplicates
from macaron.data.cleaning import RULES, Cleaned, Cleaner, Rule, clean_chunk
from macaron.data.corpus import Chunk, Corpus, chunks
from macaron.data.duplicates import TRAIN, VALID, Roles
from macaron.data.encoding import EncodeTask, Piece, count_pairs, count_words, encode_piece
from macaron.data.learning import learn_tokenizer
from macaron.data.prepared import FORMAT, Split
from macaron.data.progress import Progress
from macaron.data.settings import PairsSettings
from macaron.data.store import StoreWriter, id_dtype
from macaron.errors import MacaronError
from macaron.processes import Workers
from macaron.text.tokenizer import MacaronTokenizer

Names = tuple[Path, Path]


@dataclass
class CleanText:
    """Cleaned text of a split, on disk: a file for each side, and where every chunk lies in them.

    :param files: prepared lines (see `macaron.text.pipeline`)
    :param texts: the lines as they were given, where they are kept
    :param hashes: two 64-bit hashes a pair
    """

    files: Names
    texts: Names
    hashes: Path
    chunks: list[tuple[tuple[int, int], tuple[int, int], int]] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    dropped: Counter[Rule] = field(default_factory=Counter)
    corpora: list[dict[str, Any]] = field(default_factory=list)

    def pieces(self, roles: Roles) -> list[Piece]:
        """The chunks as tasks for the workers."""
        pieces, done = [], 0
        for starts, sizes, count in self.chunks:
            pieces.append(Piece(self.files, starts, sizes, roles[done : done + count].tobytes()))
            done += count
        return pieces

    def note(self, cleaned: Cleaned) -> None:
        """Add a chunk that has been written behind the others."""
        last_starts, last_sizes, _ = self.chunks[-1] if self.chunks else ((0, 0), (0, 0), 0)
        starts = (last_starts[0] + last_sizes[0], last_starts[1] + last_sizes[1])
        self.chunks.append((starts, (len(cleaned.sides[0]), len(cleaned.sides[1])), cleaned.kept))
        self.read += cleaned.read
        self.kept += cleaned.kept
        self.dropped.update(cleaned.dropped)


class Job:
    """One run of ``macaron prepare`` into a folder aside."""

    def __init__(
        self, recipe: PairsSettings, folder: Path, workers: Workers, progress: Progress, chunk_lines: int
    ) -> None:
        self.recipe, self.folder, self.workers, self.progress = recipe, folder, workers, progress
        self.chunk_lines = chunk_lines
        self.languages = (recipe.source_lang, recipe.target_lang)
        self.work = folder / "work"

    def run(self, corpora: dict[Split, tuple[Corpus, ...]]) -> dict[str, Any]:
        """Do everything, and return what prepared.json is to say."""
        self.work.mkdir()
        held: dict[Split, CleanText] = {
            split: self.clean(split, corpora[split]) for split in ("valid", "test") if corpora.get(split)
        }
        train = self.clean("train", corpora["train"])
        roles = self.choose(train, held)
        pieces = train.pieces(roles)
        tokenizer, subwords = self.learn(pieces, int((roles == TRAIN).sum()))

        splits = self.encode(pieces, tokenizer, {TRAIN: "train", VALID: "valid"})
        if self.recipe.valid_every:
            self._write_held_out(train, roles)
            splits["valid"]["text_state"] = corpora["train"][0].state
        for split, text in held.items():
            everything = np.full(text.kept, TRAIN, np.uint8)
            splits |= self.encode(text.pieces(everything), tokenizer, {TRAIN: split})
            splits[split]["text_state"] = corpora[split][0].state
        shutil.rmtree(self.work)
        return {
            "format": FORMAT,
            "source_lang": self.recipe.source_lang,
            "target_lang": self.recipe.target_lang,
            "pipeline": self.recipe.pipeline,
            "vocab_size": len(tokenizer),
            "tokenizer_fingerprint": tokenizer.fingerprint(),
            "splits": {split: splits[split] for split in ("train", "valid", "test") if split in splits},
            "cleaning": {
                "read": train.read,
                "dropped": {rule: train.dropped[rule] for rule in RULES},
                "held_out": int((roles == VALID).sum()),
                "kept": int((roles == TRAIN).sum()),
                "corpora": train.corpora,
            },
            "subwords": subwords,
        }

    # Step 1

    def clean(self, split: Split, corpora: Sequence[Corpus]) -> CleanText:
        """Stream corpora through the workers into files; valid and test are not cleaned but checked."""
        strict = split != "train"
        keep_text = strict or self.recipe.valid_every > 0
        place = self.folder if strict else self.work
        text = CleanText(
            files=self._names(self.work, f"{split}.prepared"),
            texts=self._names(place, split),
            hashes=self.work / f"{split}.hashes",
        )
        cleaner = self._cleaner(strict, keep_text)
        with ExitStack() as stack:
            step = stack.enter_context(self.progress.step(f"cleaning {split}" if not strict else f"reading {split}"))
            sides = [stack.enter_context(path.open("wb")) for path in text.files]
            texts = [stack.enter_context(path.open("wb")) for path in text.texts] if keep_text else []
            hashes = stack.enter_context(text.hashes.open("wb"))
            for corpus in corpora:
                before = (text.read, text.kept)
                for cleaned in self.workers.map(clean_chunk, self._tasks(cleaner, corpus)):
                    for file, content in zip((*sides, *texts), (*cleaned.sides, *cleaned.texts), strict=False):
                        file.write(content)
                    hashes.write(cleaned.hashes)
                    text.note(cleaned)
                    step(cleaned.read)
                text.corpora.append(
                    {
                        "source": str(corpus.source),
                        "target": str(corpus.target),
                        "state": corpus.state,
                        "read": text.read - before[0],
                        "kept_by_line_rules": text.kept - before[1],
                    }
                )
        return text

    def _tasks(self, cleaner: Cleaner, corpus: Corpus) -> Iterator[tuple[Cleaner, Chunk]]:
        for chunk in chunks(corpus, self.chunk_lines):
            yield cleaner, chunk

    def _cleaner(self, strict: bool, keep_text: bool) -> Cleaner:
        recipe = self.recipe
        return Cleaner(
            source_lang=recipe.source_lang,
            target_lang=recipe.target_lang,
            pipeline=recipe.pipeline,
            lower=recipe.lower,
            normalize=recipe.normalize,
            min_words=recipe.min_words,
            max_words=recipe.max_words,
            max_ratio=recipe.max_ratio,
            ratio_slack=recipe.ratio_slack,
            strict=strict,
            keep_text=keep_text,
        )

    def _names(self, place: Path, name: str) -> Names:
        source, target = (place / f"{name}.{language}" for language in self.languages)
        return source, target

    # Step 2

    def choose(self, train: CleanText, held: dict[Split, CleanText]) -> Roles:
        """Decide for every pair whether it is trained on, validated on or dropped."""
        recipe = self.recipe
        whole_pair = recipe.remove_overlap == "pair"
        with self.progress.step("duplicates and overlap") as step:
            roles = duplicates.all_train(train.hashes)
            if recipe.remove_duplicates:
                train.dropped["duplicate"] = duplicates.mark_duplicates(train.hashes, roles)
            if recipe.remove_overlap != "none":
                for text in held.values():
                    forbidden = duplicates.sorted_hashes(text.hashes.read_bytes(), whole_pair)
                    train.dropped["overlap"] += duplicates.mark_overlap(train.hashes, roles, forbidden, whole_pair)
            if recipe.valid_every:
                duplicates.hold_out(roles, recipe.valid_every)
                if recipe.remove_overlap != "none":
                    forbidden = duplicates.held_out_hashes(train.hashes, roles, whole_pair)
                    train.dropped["overlap"] += duplicates.mark_overlap(train.hashes, roles, forbidden, whole_pair)
            step(len(roles))
        if not (roles == TRAIN).any():
            dropped = ", ".join(f"{count:,} {rule}" for rule, count in train.dropped.items() if count)
            raise MacaronError(
                f"nothing is left to train on: of {train.read:,} pairs cleaning dropped all ({dropped}). "
                "Look at the files, or loosen the rules in [data]."
            )
        if recipe.valid_every and not (roles == VALID).any():
            raise MacaronError(
                f"data.valid_every = {recipe.valid_every} leaves nothing to validate on: there are only "
                f"{int((roles == TRAIN).sum()):,} pairs"
            )
        return roles

    # Step 3

    def learn(self, pieces: Sequence[Piece], pairs: int) -> tuple[MacaronTokenizer, dict[str, int]]:
        """Learn the joint vocabulary from the training pairs, and save the tokenizer."""
        with self.progress.step("counting words") as step:
            words = count_words(self.workers, pieces, count_pairs)
            step(words.lines)
        tokenizer = learn_tokenizer(words, self.folder, self.recipe, self.languages, "translation", self.progress)
        return tokenizer, {"learned_from_pairs": words.lines, "of_pairs": pairs, "word_types": len(words.counts)}

    # Step 4

    def encode(
        self, pieces: Sequence[Piece], tokenizer: MacaronTokenizer, names: dict[int, Split]
    ) -> dict[Split, dict[str, Any]]:
        """Write the token stores of the splits that the roles go to, and return their sizes."""
        roles = [role for role in names if any(role in piece.roles for piece in pieces)]
        file = self.folder / "tokenizer" / "tokenizer.json"
        identity, dtype = tokenizer.fingerprint(), id_dtype(len(tokenizer))
        raw = self.recipe.pipeline == "raw"
        tasks = (EncodeTask(piece, file, identity, dtype, raw) for piece in pieces)
        with ExitStack() as stack:
            step = stack.enter_context(
                self.progress.step(f"encoding {names[roles[0]]}", total=sum(len(piece.roles) for piece in pieces))
            )
            writers = {
                role: [
                    stack.enter_context(StoreWriter(path, len(tokenizer)))
                    for path in self._names(self.folder, names[role])
                ]
                for role in roles
            }
            for encoded in self.workers.map(encode_piece, tasks):
                for role, sides in encoded.items():
                    for writer, (ids, lengths) in zip(writers[role], sides, strict=True):
                        writer.append_flat(ids, lengths)
                    step(len(sides[0][1]))
        return {
            names[role]: {
                "pairs": source.sequences,
                "source_tokens": source.tokens,
                "target_tokens": target.tokens,
            }
            for role, (source, target) in writers.items()
        }

    def _write_held_out(self, train: CleanText, roles: Roles) -> None:
        for given, path in zip(train.texts, self._names(self.folder, "valid"), strict=True):
            with given.open("rb") as lines, path.open("wb") as file:
                file.writelines(line for line, role in zip(lines, roles.tobytes(), strict=True) if role == VALID)
