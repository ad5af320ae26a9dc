"""A prepared folder is written again only if settings that decide its contents, or its input files, have changed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from macaron.data.manifest import KINDS, MANIFEST, DataKind, read_manifest
from macaron.data.prepare.job import PrepareJob
from macaron.data.prepared import SPLITS, PreparedData, PreparedText, open_prepared
from macaron.data.settings import PairsSettings, TextSettings
from macaron.errors import MacaronError, require
from macaron.files import atomic_folder, tidy, write_json
from macaron.processes import Progress, Workers
from macaron.seal import seal
from macaron.settings import to_data
from macaron.text.fingerprint import of_ids
from macaron.text.load_tokenizer import find_tokenizer
from macaron.text.tokenizer import MacaronTokenizer

#: Increased when the same recipe and files would give another folder: older folders are then prepared again.
VERSION = 1
#: Paths and addresses do not decide what is in the folder.
_PATHS = ("out", "root", "downloads", "archives", "fetch", "wikipedia", "tokenizer")
_ELSEWHERE = "Choose another path with --out (in a recipe: data.out)."


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
