"""Back-translation: a corpus from text in one language, made by a model that translates it.

The model reads the language that is to be the target: ``PREFIX.en`` holds the text, ``PREFIX.de`` its translations,
line by line. ``PREFIX.json`` notes the progress; a command that was stopped goes on when it is given again, and the
files are the same as if it had never been stopped. Several processes translate a chunk each at a time, the first one
writes; the files are those of one process.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

import torch

from macaron.decode.degenerate import without_repetition
from macaron.decode.pieces import END
from macaron.decode.settings import Sampling, SearchSettings
from macaron.decode.translator import Translator
from macaron.errors import Interrupted, MacaronError
from macaron.files import alone, raw_lines, refusing, write_json
from macaron.json_files import Count, Record, read_json
from macaron.locks import LOCK
from macaron.processes import Progress
from macaron.text.fingerprint import of_ids

#: Why a line is left out.
RULES = {
    "bad bytes": "not UTF-8, or 1 MiB or longer",
    "empty": "without text",
    "too long": "more than --max-source-length tokens: several sentences, perhaps",
    "not translated": "the translation is empty",
    "cut": "the translation reached --max-length",
    "loop": "the translation repeats itself",
}
#: Search settings that a command may change.
_SEARCH = ("beam", "length_penalty", "max_length")
#: Characters of a step in source tokens of a batch: steps of some seconds, with batches of similar length.
_STEP = 64


#: The note beside an unfinished corpus.
_Note = TypedDict(
    "_Note",
    {
        "made by": Record,
        "read": Count,
        "counts": dict[str, Count],
        "text": str,
        "sizes": list[Count],
        "complete": bool,
    },
)


class GrowingFiles:
    """Files that grow together in steps, in one process or in several after each other: ``PATH.part``, then ``PATH``.

    What a step has written is on the disk before it is noted: a process that is killed loses its last step at most.

    :param note: JSON file with the sizes after the last step, and with what else is noted
    """

    def __init__(self, paths: Sequence[Path], note: Path) -> None:
        self.paths, self.note = paths, note
        self.parts = [path.with_name(f"{path.name}.part") for path in paths]
        #: What the last step noted.
        self.noted: dict[str, Any] = {"sizes": [0] * len(paths), "complete": False, "read": 0, "counts": {}}
        if note.exists():
            self.noted = read_json(note, _Note, "Choose another path.")
        found = len(self.noted["sizes"])
        if found != len(paths):
            raise MacaronError(f"{note} notes {found} files, not {len(paths)}. Choose another path.")

    @contextmanager
    def growing(self) -> Iterator[None]:
        """The files, open to be added to. They get their names if the block succeeds."""
        with ExitStack() as stack:
            stack.enter_context(alone(self.note, self.note.with_name(f".{self.note.name}{LOCK}")))
            with refusing(self.note):
                self._files = [stack.enter_context(part.open("ab")) for part in self.parts]
            for part, file, size in zip(self.parts, self._files, self.noted["sizes"], strict=True):
                if os.fstat(file.fileno()).st_size < size:
                    raise MacaronError(f"{part} lacks what {self.note} notes. Remove both, and begin again.")
                file.truncate(size)
                file.seek(size)
            yield
        self._write(self.noted, complete=True)
        self.put_in_place()

    def add(self, contents: Sequence[bytes], noted: dict[str, Any]) -> None:
        """Add to each file, and note what is needed to go on from here."""
        with refusing(self.note):
            for file, content in zip(self._files, contents, strict=True):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._write({**noted, "sizes": [file.tell() for file in self._files]}, complete=False)

    def put_in_place(self) -> None:
        """Name complete files, those too that a killed process did not come to."""
        for part, path in zip(self.parts, self.paths, strict=True):
            if part.exists():
                part.replace(path)

    def _write(self, noted: dict[str, Any], complete: bool) -> None:
        self.noted = {**noted, "complete": complete}
        write_json(self.note, self.noted)


def translate_corpus(
    translator: Translator,
    text: Path,
    out: Path,
    options: dict[str, Any],
    progress: Progress,
    rank: int = 0,
    world: int = 1,
    gather: Callable[[bytes], list[bytes]] = lambda content: [content],
) -> Counter[str] | None:
    """Translate a file line by line into a corpus; a line is one sentence.

    :param text: plain, .gz or .xz
    :param options: of `Translator.translate_nbest`: beam, length_penalty, max_length, sampling, batch_tokens,
        max_source_length
    :param gather: returns what every process gives, by rank
    :returns: the numbers of lines read and pairs kept, and of lines left out by rule; None if it was complete before
    """
    languages = (translator.tokenizer.source_lang, translator.tokenizer.target_lang)
    if None in languages:
        raise MacaronError(
            "the model does not say its languages, which the two files are named after: set source_lang and "
            "target_lang in its tokenizer_config.json"
        )
    files = GrowingFiles([Path(f"{out}.{language}") for language in languages], Path(f"{out}.json"))
    options = {name: value for name, value in options.items() if value is not None}
    search = replace(translator.settings, **{name: options[name] for name in _SEARCH if name in options})
    made = _made_by(translator, options, search)
    _check(files, made)
    done, counts = files.noted["read"], Counter[str](files.noted["counts"])
    digest, total = hashlib.blake2b(digest_size=16), 0  # of the lines that are done
    with progress.step("reading", "lines") as step:
        for total, raw in enumerate(raw_lines(text), start=1):
            if total <= done:
                digest.update((raw or b"") + b"\n")
        step(total)
    if not total:
        raise MacaronError(f"{text} is empty")
    if done and (digest.hexdigest() != files.noted["text"] or (files.noted["complete"] and total != done)):
        raise MacaronError(f"{text} is not the text that {out} was begun with. Give the same text, or another --out.")
    if files.noted["complete"]:
        files.put_in_place()
        return None
    try:
        with nullcontext() if rank else files.growing(), progress.step("translating", "lines", total) as step:
            step(done)
            size = _STEP * options.get("batch_tokens", translator.batch_tokens)
            chunks = _chunks(islice(raw_lines(text), done, None), size)
            while group := list(islice(chunks, world)):
                own = group[rank] if rank < len(group) else []
                first = done + 1 + sum(map(len, group[:rank]))
                found = gather(json.dumps(_translate(translator, own, first, options, search)).encode())
                rows = [row for part in found for row in json.loads(part)]
                counts.update(rule for rule, _, _ in rows)
                counts["read"] += len(rows)
                done += len(rows)
                digest.update(b"".join((line or b"") + b"\n" for chunk in group for line in chunk))
                kept = [row for row in rows if row[0] == "kept"]
                columns = ["".join(f"{row[side]}\n" for row in kept).encode() for side in (1, 2)]
                if not rank:
                    files.add(columns, {"made by": made, "read": done, "counts": counts, "text": digest.hexdigest()})
                step(len(rows))
    except KeyboardInterrupt:
        raise Interrupted(f"stopped after {done:,} of {total:,} lines; give the same command again to go on") from None
    return counts


def _translate(
    translator: Translator, chunk: list[bytes | None], first: int, options: dict[str, Any], search: SearchSettings
) -> list[tuple[str, str, str]]:
    """For each line of a chunk the rule that leaves it out, or ``kept``; the line; its translation."""
    positions = translator.model.config.max_position_embeddings - 2  # but for a tag and the end
    longest = options.get("max_source_length") or min(max(search.max_length, SearchSettings.max_length), positions)
    options = {**options, "max_source_length": longest + 1}  # nothing is split, with or without a tag
    lines = list(map(_text, chunk))
    sources = translator.tokenizer.encode_lines([line or "" for line in lines])
    # A line that is left out stays as an empty one: the random numbers of a line depend on its number.
    given = [line or "" if len(ids) - END <= longest else "" for line, ids in zip(lines, sources, strict=True)]
    found = translator.translate_nbest(given, nbest=1, first_line=first, **options)
    rows = []
    for line, ids, (best, *_) in zip(lines, sources, found, strict=True):
        translation = " ".join(best.text.split())
        notes = without_repetition(best, ids, search).notes
        broken = {
            "bad bytes": line is None,
            "empty": not line,
            "too long": len(ids) - END > longest,
            "not translated": not translation,
            "cut": "length" in notes,
            "loop": "repetition" in notes,
        }
        rule = next((rule for rule, applies in broken.items() if applies), "kept")
        rows.append((rule, line or "", translation))
    return rows


def _check(files: GrowingFiles, made: dict[str, Any]) -> None:
    """Refuse to go on with another model or other options, and to replace files that were not begun here."""
    if "made by" not in files.noted:
        for path in files.paths:
            if path.exists():
                raise MacaronError(f"{path} exists already. Choose another --out, or remove it.")
        return
    before = files.noted["made by"]
    changed = [f"{key} was {before.get(key)!r}, is {made.get(key)!r}" for key in made if before.get(key) != made[key]]
    if changed:
        raise MacaronError(
            f"{files.note} was begun with other settings: {'; '.join(changed)}. Give the same ones, or another --out."
        )


def _made_by(translator: Translator, options: dict[str, Any], search: SearchSettings) -> dict[str, Any]:
    """All that the translations depend on besides the text, as JSON has it."""
    weights = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(translator.model.state_dict().items()):
        weights.update(name.encode())
        weights.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    drawn: Sampling | None = options.get("sampling")
    return {
        "model": weights.hexdigest(),
        "tokenizer": of_ids(translator.tokenizer.fingerprint()),
        "precision": "int8"
        if translator.int8
        else str(translator.half or translator.model.embedding.tokens.weight.dtype),
        "tag": translator.tag,
        **{name: getattr(search, name) for name in _SEARCH},
        "max_source_length": options.get("max_source_length"),
        "sampling": None if drawn is None else asdict(drawn),
    }


def _chunks(lines: Iterator[bytes | None], size: int) -> Iterator[list[bytes | None]]:
    chunk: list[bytes | None] = []
    room = size
    for line in lines:
        chunk.append(line)
        room -= len(line or b"") + 1
        if room <= 0:
            yield chunk
            chunk, room = [], size
    if chunk:
        yield chunk


def _text(raw: bytes | None) -> str | None:
    """A line with single spaces; None if it cannot be read."""
    try:
        return None if raw is None else " ".join(raw.decode().replace("\0", " ").split())
    except UnicodeDecodeError:
        return None
