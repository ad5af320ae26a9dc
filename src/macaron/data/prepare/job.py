"""``macaron prepare``: a folder is written if settings that decide its contents, or its input files, have changed.

1. All files are streamed through the workers, which clean them; the rows that are left (pairs or sentences) are written
   to plain files, one per column.
2. Every row gets its role: duplicates and overlap are found by hashes, and rows to validate on are held out.
3. The subword vocabulary is learned, from a sample if the corpus is big.
4. The rows are encoded into token stores.

Memory grows by 1 byte per pair, and by 9 more at most in step 2. For documents only the list of parts grows.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from macaron.data.prepare.cleaning import RULES, AlignedFiles, chunks, clean_pairs, clean_text, pipeline_of
from macaron.data.prepare.encoding import CleanedSplit, count_words, encode_part
from macaron.data.prepare.roles import DUPLICATE, OVERLAP, TRAIN, VALID, choose_pairs, hold_out_documents
from macaron.data.prepared import (
    FORMAT,
    KINDS,
    MANIFEST,
    SPLITS,
    DataKind,
    PreparedData,
    PreparedText,
    Split,
    open_prepared,
    read_manifest,
)
from macaron.data.settings import PairsSettings, TextSettings
from macaron.data.store import StoreWriter
from macaron.errors import MacaronError, require
from macaron.files import atomic_folder, tidy, write_json
from macaron.processes import Progress, Workers
from macaron.seal import seal
from macaron.settings import to_data
from macaron.text.extension import extended, repeated_words
from macaron.text.fingerprint import of_ids
from macaron.text.load_tokenizer import find_tokenizer
from macaron.text.pipeline import MOSES_SETTINGS
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import chosen_size

#: Lines and bytes of a chunk, which a worker cleans at a time.
CHUNKS: dict[DataKind, tuple[int, int]] = {"pairs": (10_000, 8 << 20), "text": (5_000, 2 << 20)}
#: Increased when the same recipe and files would give another folder: older folders are then prepared again.
VERSION = 1
#: Paths and addresses do not decide what is in the folder.
_PATHS = ("out", "root", "downloads", "archives", "fetch", "wikipedia", "tokenizer")
_ELSEWHERE = "Choose another path with --out (in a recipe: data.out)."


@dataclass
class PrepareJob:
    """One run of ``macaron prepare`` into an empty folder, with a new tokenizer or a given one."""

    settings: PairsSettings | TextSettings
    folder: Path
    workers: Workers
    progress: Progress
    given: MacaronTokenizer | None = None

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        self.is_text = isinstance(self.settings, TextSettings)
        self.unit = "sentences" if self.is_text else "pairs"
        #: What follows the name of a split in the names of its files, for each column.
        self.endings = ("",) if self.is_text else tuple(f".{language}" for language in self.settings.languages)

    def run(self, files: dict[Split, tuple[AlignedFiles, ...]]) -> dict[str, Any]:
        """Do all steps, and return the contents of prepared.json."""
        self.work.mkdir()
        scored: tuple[Split, ...] = ("valid", "test")
        held = {split: self.clean(split, files[split]) for split in scored if files.get(split)}
        train = self.clean("train", files["train"])
        kept = self.choose(train, held)
        tokenizer, subwords = self.learn(train)
        roles: dict[int, Split] = {TRAIN: "train", VALID: "valid"} if kept[VALID] else {TRAIN: "train"}
        splits = self.encode(train, files["train"], tokenizer, roles)
        for split, cleaned in held.items():
            splits |= self.encode(cleaned, files[split], tokenizer, {TRAIN: split})
        shutil.rmtree(self.work)
        cleaning = {**train.counts, "dropped": {rule: train.dropped[rule] for rule in RULES[self.settings.kind]}}
        if self.is_text:
            cleaning["files"] = train.sources
        else:
            cleaning |= {"held_out": kept[VALID], "kept": kept[TRAIN], "corpora": train.sources}
        source_lang, target_lang = self.settings.languages
        pair = {"source_lang": source_lang, "target_lang": target_lang}
        return {
            "format": FORMAT,
            **({"kind": "text", "lang": source_lang} if self.is_text else pair),
            "pipeline": self.settings.pipeline,
            "vocab_size": len(tokenizer),
            "tokenizer_fingerprint": tokenizer.fingerprint(),
            "splits": splits,
            "cleaning": cleaning,
            "subwords": {**subwords, f"of_{self.unit}": kept[TRAIN]},
        }

    # Step 1

    def clean(self, split: Split, files: Sequence[AlignedFiles]) -> CleanedSplit:
        """Stream files through the workers. The pairs of valid and test are checked, and none is dropped."""
        strict = split != "train"
        keep_text = not self.is_text and (strict or self.settings.holds_out)
        cleaned = CleanedSplit(self.work / f"cleaned-{split}")
        cleaned.folder.mkdir()
        name = "splitting into sentences" if self.is_text else f"{'reading' if strict else 'cleaning'} {split}"
        more = {} if self.is_text else {"strict": strict, "keep_text": keep_text}
        clean: Any = clean_text if self.is_text else clean_pairs
        task = partial(clean, settings=self.settings, **more)
        with ExitStack() as stack:
            step = stack.enter_context(self.progress.step(name, self.unit))
            texts = [f"text{ending}" for ending in self.endings if keep_text]
            names = [*map(str, range(len(self.endings))), "hashes", "starts", *texts]
            outputs = [stack.enter_context((cleaned.folder / name).open("wb")) for name in names]
            for each in files:
                before = cleaned.counts.copy()
                for chunk in self.workers.map(task, chunks(each, *CHUNKS[self.settings.kind])):
                    offsets = tuple(file.tell() for file in outputs[: len(self.endings)])
                    starts = cleaned.add(chunk, offsets, each.tag)
                    contents = (*chunk.columns, chunk.hashes, starts, *chunk.texts)
                    for file, content in zip(outputs, contents, strict=True):
                        file.write(content)
                    step(chunk.rows if self.is_text else chunk.counts["read"])
                sides = dict(
                    zip(("file",) if self.is_text else ("source", "target"), map(str, each.paths), strict=True)
                )
                counts = {name: count - before[name] for name, count in cleaned.counts.items()}
                cleaned.sources.append({**sides, "state": each.state, **counts})
        if strict:  # nothing is dropped
            (cleaned.folder / "roles").write_bytes(bytes([TRAIN]) * cleaned.rows)
        return cleaned

    # Step 2

    def choose(self, train: CleanedSplit, held: dict[Split, CleanedSplit]) -> Counter[int]:
        """Decide for every row whether it is trained on, validated on or dropped; return the size of each role."""
        settings, counts = self.settings, train.counts
        names = ", ".join(source["file" if self.is_text else "source"] for source in train.sources)
        if isinstance(settings, TextSettings):
            if counts["documents"] == 1:
                raise MacaronError(f"{names}: only one document. Two are needed. Separate documents by blank lines.")
            held_out = hold_out_documents(train.folder, settings.valid_every, counts["documents"])
            kept = Counter({TRAIN: train.rows - held_out, VALID: held_out})
        else:
            with self.progress.step("duplicates and overlap") as step:
                hashes = [split.folder / "hashes" for split in (train, *held.values())]
                roles = choose_pairs(settings, *hashes)
                roles.tofile(train.folder / "roles")
                step(len(roles))
            kept = Counter({role: int((roles == role).sum()) for role in (TRAIN, VALID, DUPLICATE, OVERLAP)})
            train.dropped.update(duplicate=kept[DUPLICATE], overlap=kept[OVERLAP])
        listed = ", ".join(f"{count:,} {rule}" for rule, count in train.dropped.items() if count)
        given = f"{counts['paragraphs']:,} paragraphs" if self.is_text else f"{counts['read']:,} pairs"
        nothing = f"{names}: nothing is left to train on: of {given} everything was dropped ({listed})"
        require(kept[TRAIN] > 0, f"{nothing}. Look at the files, or loosen the rules in [data].")
        if settings.holds_out:
            wanted = settings.valid_every
            if not kept[VALID]:
                absent = "There is no data.valid, and holding pairs out"
                cause = absent if wanted is None else f"data.valid_every = {wanted}"
                raise MacaronError(f"{cause} leaves nothing to validate on: there are only {kept[TRAIN]:,} {self.unit}")
            if wanted is None:
                share = (kept[TRAIN] + kept[VALID]) // kept[VALID]
                about = f"about one in {share} is held out, {kept[VALID]:,} in all"
                why = f"no corpus to validate on was given: {about}"
                self.progress.say(f"{why} (data.valid_every sets the share; 0: none)")
        return kept

    # Step 3

    def learn(self, train: CleanedSplit) -> tuple[MacaronTokenizer, dict[str, int]]:
        """Learn the vocabulary from the rows that are trained on, unless it is given, and save the tokenizer."""
        settings = self.settings
        if self.given is not None and settings.extend_vocab is None and set(settings.tags) <= set(self.given.tags):
            self.given.save_pretrained(self.folder / "tokenizer")
            return self.given, {}
        with self.progress.step("counting words", self.unit) as step:
            words, rows = count_words(self.workers, train.parts)
            step(rows)
        more = settings.extend_vocab or 0
        if self.given is not None:
            wanted = len(self.given) + more
        elif settings.vocab_size != "auto":
            wanted = settings.vocab_size
        else:
            wanted, reason = chosen_size(words.total(), settings.vocabulary)
            self.progress.say(f"data.vocab_size = {wanted:,}: {reason}")
        with self.progress.step("learning subwords", "words") as step:
            step(len(words))
            if self.given is not None:
                tokenizer = extended(self.given, words, more, settings.vocab_multiple, settings.tags)
            else:
                pipeline = pipeline_of(settings)
                tokenizer = MacaronTokenizer.train(
                    repeated_words(words, settings.pipeline == "raw"),
                    wanted,
                    pipeline=settings.pipeline,
                    kind=settings.vocabulary,
                    prepared=True,
                    pad_to_multiple=settings.vocab_multiple,
                    tags=settings.tags,
                    **{name: getattr(pipeline, name) for name in MOSES_SETTINGS},
                )
        tokenizer.save_pretrained(self.folder / "tokenizer")
        if len(tokenizer) < wanted:
            self.progress.say(f"the corpus gives {len(tokenizer):,} subwords, not {wanted:,}")
        return tokenizer, {f"learned_from_{self.unit}": rows, "word_types": len(words)}

    # Step 4

    def encode(
        self, cleaned: CleanedSplit, files: Sequence[AlignedFiles], tokenizer: MacaronTokenizer, names: dict[int, Split]
    ) -> dict[Split, dict[str, Any]]:
        """Write the token stores of the splits that the roles go to, and return their sizes."""
        task = partial(encode_part, tokenizer=self.folder / "tokenizer", fingerprint=tokenizer.fingerprint())
        with ExitStack() as stack:
            step = stack.enter_context(self.progress.step(f"encoding {names[TRAIN]}", self.unit, total=cleaned.rows))
            writers: dict[int, list[StoreWriter]] = {}
            for role, split in names.items():
                paths = (self.folder / f"{split}{ending}" for ending in self.endings)
                stores = (StoreWriter(path, len(tokenizer), documents=self.is_text) for path in paths)
                writers[role] = [stack.enter_context(store) for store in stores]
            pairs: Counter[tuple[int, int]] = Counter()  # of a role and a corpus
            encoded_parts = self.workers.map(task, cleaned.parts)
            for part, encoded in zip(cleaned.parts, encoded_parts, strict=True):
                for role, (columns, starts) in encoded.items():
                    pairs[role, part.corpus[0]] += len(columns[0][1])
                    for writer, (ids, lengths) in zip(writers[role], columns, strict=True):
                        writer.append(ids, lengths, starts)
                    step(len(columns[0][1]))
        sizes: dict[Split, dict[str, Any]] = {}
        for role, split in names.items():
            first, last = writers[role][0], writers[role][-1]
            if self.is_text:
                sizes[split] = {"documents": first.documents, "sentences": first.sequences, "tokens": first.tokens}
                continue
            corpora = [
                {"path": each.prefix, "pairs": pairs[role, number], **({"tag": each.tag} if each.tag else {})}
                for number, each in enumerate(files)
            ]
            tokens = {"source_tokens": first.tokens, "target_tokens": last.tokens}
            sizes[split] = {"pairs": first.sequences, **tokens, "corpora": corpora}
            if split != "train":  # it is scored: its text as it was given
                sizes[split]["text_state"] = files[0].state
                roles = (cleaned.folder / "roles").read_bytes()
                for ending in self.endings:
                    given, written = cleaned.folder / f"text{ending}", self.folder / f"{split}{ending}"
                    with given.open("rb") as lines, written.open("wb") as file:
                        file.writelines(line for line, each in zip(lines, roles, strict=True) if each == role)
        return sizes


@dataclass(frozen=True)
class Outcome:
    """The result of `prepare`."""

    data: PreparedData | PreparedText
    reason: str | None  # why the folder was written; None: it was up to date


def prepare(
    settings: PairsSettings | TextSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    verify: bool = False,
) -> Outcome:
    """Prepare a corpus for training; ``verify``: read an existing folder, even if it has not changed since then."""
    from macaron.data.prepare.fetch import gather  # late: worker processes do without it

    progress = progress or Progress(quiet=True)
    tidy(settings.out)  # what is complete and up to date is not written again
    older = _older(settings.out, settings.kind)
    kind = {"kind": "text"} if settings.kind == "text" else {}
    settings, given = _with_tokenizer(settings)
    origin = {} if given is None else {"tokenizer_fingerprint": of_ids(given.fingerprint())}
    stored = {"version": VERSION, **kind, **to_data(settings), **origin}
    for split in ("valid", "test"):
        before = [corpus["path"] for corpus in older.get("settings", {}).get(split, [])]
        again = " ".join(f"--{split} {path}" for path in before)
        lost = f"{settings.out} has a {split} split, which would be lost: nothing is given for it now"
        remedy = f"Add {again} (in a recipe: [[data.{split}]]), choose another --out, or remove the folder first."
        require(not before or bool(stored.get(split)), f"{lost}. {remedy}")
    files, fingerprints, downloads = gather(settings, older, progress, workers)
    reason = _reason(settings.out.absolute(), older, stored, fingerprints)
    if reason is None:
        try:
            data = open_prepared(settings.out)
            data.verify(data.splits, verify)
            data.check()
            if _weights(older["settings"]) != _weights(stored):
                progress.say(f"{settings.out}: only weights have changed, which are noted")
                data.manifest["settings"]["train"] = stored["train"]
                write_json(settings.out / MANIFEST, data.manifest)
                seal(settings.out, [MANIFEST])
            return Outcome(data, None)
        except MacaronError as error:
            reason = str(error)
    if reason != "new":
        progress.say(f"{settings.out} is prepared again: {reason}")
    with atomic_folder(settings.out) as folder, Workers(workers) as pool:
        manifest = PrepareJob(settings, folder, pool, progress, given).run(files)
        manifest |= {"settings": stored, "inputs": fingerprints, "downloads": downloads}
        write_json(folder / MANIFEST, manifest)
        seal(folder)
    return Outcome(open_prepared(settings.out), reason)


def _with_tokenizer(
    settings: PairsSettings | TextSettings,
) -> tuple[PairsSettings | TextSettings, MacaronTokenizer | None]:
    if settings.tokenizer is None:
        return settings, None
    given = find_tokenizer(settings.tokenizer, settings.vocabulary)
    source_lang, target_lang = settings.languages
    if (given.source_lang, given.target_lang) != (source_lang, target_lang):
        given = given.changed(source_lang=source_lang, target_lang=target_lang)
    pipeline = {name: getattr(given, name) for name in ("pipeline", "lower", "normalize")}
    return replace(settings, vocab_size="auto", **pipeline), given


def _decisive(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what is in the folder. Of a corpus that is its state; the files are compared apart."""
    decisive = {key: value for key, value in settings.items() if key not in _PATHS}
    for split in SPLITS:
        if settings.get("kind") == "text":  # patterns, each of which may mean several files
            decisive.pop(split, None)
            decisive.setdefault("documents", "blank-lines")  # as in earlier versions
        else:
            decisive[split] = [(corpus["state"], corpus.get("tag")) for corpus in settings.get(split, [])]
    decisive.setdefault("valid_every", 0 if decisive.get("valid") else None)
    return decisive


def _weights(settings: dict[str, Any]) -> list[float]:
    """The weights of the corpora to train on. They are applied in training and decide nothing here."""
    return [corpus.get("weight", 1.0) for corpus in settings["train"]]


def _older(out: Path, kind: DataKind) -> dict[str, Any]:
    """The manifest of an existing prepared folder; a folder that is not one is left alone."""
    out = out.absolute()
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    require((out / MANIFEST).is_file(), f"{out} exists and was not written by 'macaron prepare'. {_ELSEWHERE}")
    try:
        older = read_manifest(out)
    except MacaronError:  # of an older version, or damaged: it is replaced
        return {}
    held = older.get("kind", "pairs")
    require(held == kind, f"{out} holds {KINDS[held]}. {_ELSEWHERE}")
    return older


def _reason(out: Path, older: dict[str, Any], settings: dict[str, Any], inputs: list[dict[str, Any]]) -> str | None:
    if not {"settings", "inputs", "cleaning", "subwords"} <= older.keys():
        return "written by another version, or damaged" if (out / MANIFEST).exists() else "new"
    old, new = _decisive(older["settings"]), _decisive(settings)
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if changed:
        return f"changed: {', '.join(changed)}"
    if any(weight != 1 for weight in _weights(settings)) and "corpora" not in older["splits"]["train"]:
        return "the corpora of its pairs were not noted, which weights need"
    # Files that were moved or touched are the same.
    before, now = ([(entry["sha256"], entry.get("state")) for entry in each] for each in (older["inputs"], inputs))
    return None if before == now else "the input files have changed"
