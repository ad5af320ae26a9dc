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
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from macaron.decode.degenerate import without_repetition
from macaron.decode.settings import Sampling, SearchSettings
from macaron.decode.stream import full_windows
from macaron.decode.text_pieces import END
from macaron.decode.translator import Translator
from macaron.errors import Interrupted, MacaronError
from macaron.files import LOCK, alone, raw_lines, refusing, write_json
from macaron.json_files import Count, Record, read_json
from macaron.models.load import find_folder
from macaron.processes import Progress
from macaron.seal import fingerprint
from macaron.settings import load_toml

#: Why a line is left out.
RULES: dict[str, str] = load_toml(Path(__file__).with_name("corpus.toml"))[0]
#: Search settings that a command may change.
_SEARCH = ("beam", "length_penalty", "max_length")
#: Characters of the first steps in source tokens of a batch; later steps take some seconds.
_STEP = 4


@dataclass(frozen=True)
class _Noted:
    """What ``PREFIX.json`` says: what made a corpus, what is on the disk, a digest of the lines that were read."""

    made_by: Record
    read: Count = 0
    counts: dict[str, Count] = field(default_factory=dict)
    text: str = ""
    source_size: Count = 0
    target_size: Count = 0
    complete: bool = False


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

    :param options: of `Translator.translate_nbest`, but for those about lines
    :param gather: returns what every process gives, by rank
    :returns: the numbers of lines read and pairs kept, and of lines left out by rule; None if it was complete before
    """
    languages = (translator.tokenizer.source_lang, translator.tokenizer.target_lang)
    if None in languages:
        raise MacaronError(
            "the model does not say its languages: set source_lang and target_lang in tokenizer_config.json"
        )
    note, paths = Path(f"{out}.json"), [Path(f"{out}.{language}") for language in languages]
    parts = {path.with_name(f"{path.name}.part"): path for path in paths}
    options = {name: value for name, value in options.items() if value is not None}
    search = replace(translator.settings, **{name: options[name] for name in _SEARCH if name in options})
    noted = _begun(note, paths, _made_by(translator, options, search))
    done, counts = noted.read, Counter[str](noted.counts)
    digest, total = hashlib.blake2b(digest_size=16), 0  # of the lines that are done
    with progress.step("reading", "lines") as step:
        for total, line in enumerate(_lines(text), start=1):
            if total <= done:
                digest.update(line + b"\n")
        step(total)
    if not total:
        raise MacaronError(f"{text} is empty")
    if (done and digest.hexdigest() != noted.text) or (noted.complete and total != done):
        raise MacaronError(f"{text} is not the text that {out} was begun with. Give the same text, or another --out.")
    try:
        opened: Any = nullcontext() if rank or noted.complete else _growing(note, list(parts), noted)
        with opened as files, progress.step("translating", "lines", total) as step:
            step(done)
            size = _STEP * options.get("batch_tokens", translator.batch_tokens)
            chunks = full_windows(islice(_lines(text), done, None), size)
            while group := list(islice(chunks, world)):
                own = group[rank] if rank < len(group) else []
                first = done + 1 + sum(map(len, group[:rank]))
                found = gather(json.dumps(_translate(translator, own, first, options, search)).encode())
                rows = [row for part in found for row in json.loads(part)]
                counts.update(rule for rule, _, _ in rows)
                counts["read"] += len(rows)
                done += len(rows)
                digest.update(b"".join(line + b"\n" for chunk in group for line in chunk))
                if not rank:
                    # What a step has written is on the disk before it is noted: who is killed loses one step at most.
                    with refusing(note):
                        for side, file in enumerate(files, start=1):
                            file.write("".join(f"{row[side]}\n" for row in rows if row[0] == "kept").encode())
                            file.flush()
                            os.fsync(file.fileno())
                    sizes = {"source_size": files[0].tell(), "target_size": files[1].tell()}
                    noted = replace(noted, read=done, counts=dict(counts), text=digest.hexdigest(), **sizes)
                    write_json(note, vars(noted))
                step(len(rows))
    except KeyboardInterrupt:
        raise Interrupted(f"stopped after {done:,} of {total:,} lines; give the same command again to go on") from None
    if not rank and not noted.complete:
        write_json(note, {**vars(noted), "complete": True})
    for part, path in parts.items():
        if not rank and part.exists():  # those, too, that a killed process did not come to
            part.replace(path)
    return None if noted.complete else counts


def _begun(note: Path, paths: Sequence[Path], made: dict[str, Any]) -> _Noted:
    """What was noted before; made with another model or other options, or not begun here, files are refused."""
    if not note.exists():
        for path in paths:
            if path.exists():
                raise MacaronError(f"{path} exists already. Choose another --out, or remove it.")
        return _Noted(made)
    noted: _Noted = read_json(note, _Noted, "Choose another path.")
    before = noted.made_by
    changed = [f"{key} was {before.get(key)!r}, is {made.get(key)!r}" for key in made if before.get(key) != made[key]]
    if changed:
        raise MacaronError(
            f"{note} was begun with other settings: {'; '.join(changed)}. Give the same, or another --out."
        )
    return noted


@contextmanager
def _growing(note: Path, parts: Sequence[Path], noted: _Noted) -> Iterator[list[BinaryIO]]:
    """The files as they were noted, open to be added to."""
    with ExitStack() as stack:
        stack.enter_context(alone(note, note.with_name(f".{note.name}{LOCK}")))
        with refusing(note):
            files: list[BinaryIO] = [stack.enter_context(part.open("ab")) for part in parts]
        for part, file, size in zip(parts, files, (noted.source_size, noted.target_size), strict=True):
            if os.fstat(file.fileno()).st_size < size:
                raise MacaronError(f"{part} lacks what {note} notes. Remove both, and begin again.")
            file.truncate(size)
            file.seek(size)
        yield files


def _translate(
    translator: Translator, chunk: list[bytes], first: int, options: dict[str, Any], search: SearchSettings
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


def _made_by(translator: Translator, options: dict[str, Any], search: SearchSettings) -> dict[str, Any]:
    """All that the translations depend on besides the text, as JSON has it."""
    assert translator.folder is not None
    drawn: Sampling | None = options.get("sampling")
    return {
        "model": fingerprint(find_folder(translator.folder)),
        "precision": translator.precision,
        "tag": translator.tag,
        **{name: getattr(search, name) for name in _SEARCH},
        "max_source_length": options.get("max_source_length"),
        "sampling": None if drawn is None else asdict(drawn),
    }


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a text; over-long ones as one that is not UTF-8 either."""
    return (b"\xff" if line is None else line for line in raw_lines(path))


def _text(line: bytes) -> str | None:
    """A line with single spaces; None if it cannot be read."""
    try:
        return " ".join(line.decode().replace("\0", " ").split())
    except UnicodeDecodeError:
        return None
