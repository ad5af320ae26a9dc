"""Several models: by language pair, by name; and the detection of a text's language among theirs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError, UsageError, require
from macaron.json_files import Record, read_json
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.load import find_folder, load_config, run_of, stored_type
from macaron.settings import load_toml

_PAIR = re.compile(r"([A-Za-z]{2,8}(?:-[A-Z][A-Za-z]*)?)-([A-Za-z]{2,8}(?:-[A-Z][A-Za-z]*)?)=(.+)")
_NAMES, _ = load_toml(Path(__file__).with_name("languages.toml"))
#: Characters that a language is detected from.
_DETECTED = 2000
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class ServedModel:
    """A model and what it is for.

    :param name: unique among the served models: ``de-en``, or the folder's name for an encoder
    :param tasks: Hugging Face's names of what it does, its own task first
    :param source: language codes of a translation model, empty for encoders
    """

    name: str
    folder: Path
    tasks: tuple[str, ...]
    source: str = ""
    target: str = ""


class Catalogue:
    """All models that are served, by their names and by their pairs of languages.

    :param arguments: model folders or folders of runs; ``de-en=FOLDER`` names the languages of a model
    """

    def __init__(self, arguments: Iterable[str]) -> None:
        self.models: dict[str, ServedModel] = {}
        for model in map(_served, arguments):
            if (other := self.models.setdefault(model.name, model)) is not model:
                both = f"{model.folder} and {other.folder} are both {model.name}"
                raise UsageError(f"{both}: serve one of them, or two servers")
        self.pairs = {(model.source, model.target): model for model in self.models.values() if model.source}
        #: Codes of the languages that can be translated; and all codes, those first.
        self.sources = list(dict.fromkeys(source for source, _ in self.pairs))
        self.languages = list(dict.fromkeys([*self.sources, *(target for _, target in self.pairs)]))

    def language(self, code: str) -> str:
        """A language as the models name it: ``EN-US`` and ``en_XX`` are ``en`` where only that is known."""
        given = code.replace("_", "-")
        for form in (str.lower, _base):
            if found := [known for known in self.languages if form(known) == form(given)]:
                return found[0]
        known = ", ".join(self.languages) or "none"
        raise MacaronError(f"the language {code[:20]} is not supported: this server has {known}")

    def pair(self, source: str, target: str) -> ServedModel:
        """The model that translates from one language into another, both as `language` gives them."""
        if (source, target) not in self.pairs:
            pairs = ", ".join(model.name for model in self.pairs.values())
            raise MacaronError(f"{source} to {target} is not supported: this server has {pairs}")
        return self.pairs[source, target]

    def detect(self, text: str, target: str = "") -> list[tuple[str, float]]:
        """The source languages that a text may have, with confidences between 0 and 1, best first.

        :param target: only languages that are translated into this one; and itself, if it is the best
        """
        shares = dict.fromkeys(self.sources, 1.0 if len(self.sources) == 1 else 0.0)
        if len(shares) > 1 and self._identifier is not None:
            codes = {_base(code): code for code in reversed(self.sources)}
            sample = _TAG.sub(" ", text[: 4 * _DETECTED])[:_DETECTED]
            shares |= {codes[str(each)]: float(share) for each, share in self._identifier.rank(sample)}
        ranked = sorted(shares.items(), key=lambda each: -each[1])
        best = ranked[0][0] if ranked else ""
        return [each for each in ranked if not target or each[0] == target == best or (each[0], target) in self.pairs]

    @cached_property
    def _identifier(self) -> Any:
        """Loaded when first needed, in some tenths of a second; None where it knows fewer than two of the languages."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = {_base(code) for code in self.sources} & set(found.labels)
        if len(known) < 2:
            return None
        found.set_languages(sorted(known))
        return found


def language_name(code: str) -> str:
    """The English name of a language; the code where it is unknown."""
    return str(_NAMES.get(_base(code), code))


def _base(code: str) -> str:
    return code.split("-", maxsplit=1)[0].lower()


def _served(argument: str) -> ServedModel:
    given = _PAIR.fullmatch(argument)
    folder = find_folder(given[3] if given else argument)
    kind = stored_type(folder)
    if kind == EncoderConfig.model_type:
        config = load_config(folder, EncoderConfig)
        own = "text_classification" if config.id2label else "fill_mask"
        place = folder.resolve()
        name = (run_of(folder) or (place.parent if place.name == "model" else place)).name
        return ServedModel(name, folder, (own, "feature_extraction", "sentence_similarity"))
    require(kind == TranslationConfig.model_type, f"{folder}: a model of type {kind!r} cannot be served")
    stored = read_json(folder / "tokenizer_config.json", Record)
    pair = (given[1], given[2]) if given else (stored.get("source_lang"), stored.get("target_lang"))
    if not all(isinstance(code, str) and code for code in pair):
        raise UsageError(f"{folder}: the model does not name its languages. Name them: de-en={argument}")
    source, target = map(str, pair)
    return ServedModel(f"{source}-{target}", folder, ("translation",), source, target)
