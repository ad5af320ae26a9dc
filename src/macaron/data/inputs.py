"""The files that a recipe names: found, or fetched, and fingerprinted."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron.data.corpus import Corpus, find_file, fingerprint, missing_files
from macaron.data.prepared import SPLITS, Split
from macaron.data.progress import Progress
from macaron.data.settings import CorpusSettings, PairsSettings
from macaron.errors import MacaronError


@dataclass(frozen=True)
class Inputs:
    """The corpora of a recipe, by split, with fingerprints of their files and an account of what was fetched."""

    corpora: dict[Split, tuple[Corpus, ...]]
    fingerprints: list[dict[str, Any]]
    downloads: list[dict[str, Any]]


def gather(recipe: PairsSettings, older: Mapping[str, Any], progress: Progress) -> Inputs:
    """Find all files; fetch what is not here and can be had; name all that are missing.

    :param older: prepared.json of an earlier run; its fingerprints spare reading files that have not changed
    """
    languages = (recipe.source_lang, recipe.target_lang)
    wanted: dict[Split, tuple[CorpusSettings, ...]] = {split: getattr(recipe, split) for split in SPLITS}
    every = [corpus for corpora in wanted.values() for corpus in corpora]
    missing = missing_files(
        [recipe.root / corpus.path for corpus in every if corpus.url is None and corpus.archive is None], languages
    )
    if missing:
        raise MacaronError("these files are missing:\n  " + "\n  ".join(dict.fromkeys(missing)))
    downloads: list[dict[str, Any]] = list(older.get("downloads", []))
    absent = [corpus for corpus in every if missing_files([recipe.root / corpus.path], languages)]
    if absent:
        from macaron.data.fetch import fetch_corpora

        fetched = fetch_corpora(recipe, absent, downloads, progress)
        names = {record["file"] for record in fetched}
        downloads = [record for record in downloads if record["file"] not in names] + fetched
    corpora: dict[Split, tuple[Corpus, ...]] = {
        split: tuple(_found(recipe, corpus) for corpus in wanted[split]) for split in SPLITS
    }
    files = [path for split in SPLITS for corpus in corpora[split] for path in (corpus.source, corpus.target)]
    by_name = {entry["file"]: entry for entry in older.get("inputs", [])}
    return Inputs(corpora, [fingerprint(path, by_name.get(str(path))) for path in files], downloads)


def _found(recipe: PairsSettings, corpus: CorpusSettings) -> Corpus:
    prefix: Path = recipe.root / corpus.path
    source, target = find_file(prefix, recipe.source_lang), find_file(prefix, recipe.target_lang)
    if source is None or target is None:  # fetched a moment ago: somebody took it away
        raise MacaronError(f"{prefix}: its files have disappeared")
    return Corpus(source, target, corpus.state)
