"""The models that are served: by language pair, by name; and the detection of a text's language among theirs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from macaron.errors import MacaronError, UsageError, unknown
from macaron.json_files import Record, read_json
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.load import find_folder, load_config, run_of, stored_type

Kind = Literal["translation", "encoder"]
_PAIR = re.compile(r"([A-Za-z]{2,8}(?:-[A-Z][A-Za-z]*)?)-([A-Za-z]{2,8}(?:-[A-Z][A-Za-z]*)?)=(.+)")
_ENGLISH = (
    "af=Afrikaans ar=Arabic az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali bs=Bosnian ca=Catalan cs=Czech "
    "cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto es=Spanish et=Estonian eu=Basque fa=Persian "
    "fi=Finnish fr=French ga=Irish gl=Galician gu=Gujarati he=Hebrew hi=Hindi hr=Croatian hu=Hungarian hy=Armenian "
    "id=Indonesian is=Icelandic it=Italian ja=Japanese ka=Georgian kk=Kazakh km=Khmer kn=Kannada ko=Korean ku=Kurdish "
    "ky=Kyrgyz la=Latin lb=Luxembourgish lt=Lithuanian lv=Latvian mk=Macedonian ml=Malayalam mn=Mongolian mr=Marathi "
    "ms=Malay mt=Maltese my=Burmese nb=Norwegian ne=Nepali nl=Dutch nn=Nynorsk no=Norwegian pa=Punjabi pl=Polish "
    "ps=Pashto pt=Portuguese ro=Romanian ru=Russian si=Sinhala sk=Slovak sl=Slovenian sq=Albanian sr=Serbian "
    "sv=Swedish sw=Swahili ta=Tamil te=Telugu th=Thai tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu uz=Uzbek "
    "vi=Vietnamese zh=Chinese zu=Zulu"
)
#: English names of languages by their codes.
LANGUAGES: dict[str, str] = dict(each.split("=") for each in _ENGLISH.split())


@dataclass(frozen=True)
class ServedModel:
    """A model and what it is for.

    :param name: unique among the served models: ``de-en``, or the folder's name for an encoder
    :param source: language codes of a translation model, empty for encoders
    :param labels: of a classifier; empty for other models
    """

    name: str
    folder: Path
    kind: Kind
    source: str = ""
    target: str = ""
    labels: tuple[str, ...] = ()


class Catalogue:
    """All models that are served.

    :param arguments: model folders or folders of runs; ``de-en=FOLDER`` names the languages of a model
    """

    def __init__(self, arguments: Iterable[str]) -> None:
        self.models = tuple(_served(argument) for argument in arguments)
        seen: dict[str, ServedModel] = {}
        for model in self.models:
            if (other := seen.setdefault(model.name, model)) is not model:
                raise UsageError(
                    f"{model.folder} and {other.folder} are both {model.name}: serve one of them, or two servers"
                )

    def named(self, name: str) -> ServedModel:
        """The model of a name."""
        found = next((model for model in self.models if model.name == name), None)
        if found is None:
            raise unknown("model", name, [model.name for model in self.models])
        return found

    def pair(self, source: str, target: str) -> ServedModel | None:
        """The model that translates from one language into another; case does not matter."""
        wanted = (source.lower(), target.lower())
        return next((m for m in self.translators if (m.source.lower(), m.target.lower()) == wanted), None)

    @property
    def translators(self) -> list[ServedModel]:
        """The translation models."""
        return [model for model in self.models if model.kind == "translation"]

    @property
    def sources(self) -> list[str]:
        """Codes of the languages that can be translated."""
        return list(dict.fromkeys(model.source for model in self.translators))

    def targets(self, source: str) -> list[str]:
        """Codes of the languages that a language can be translated into."""
        return [model.target for model in self.translators if model.source == source]

    @property
    def languages(self) -> list[str]:
        """All codes, sources first."""
        return list(dict.fromkeys([*self.sources, *(model.target for model in self.translators)]))

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The served source languages with their probabilities for a text, best first."""
        sources = self.sources
        found: list[tuple[str, float]] = []
        if len(sources) > 1 and self._identifier is not None:
            codes = {_base(code): code for code in reversed(sources)}
            found = [(codes[str(each)], float(share)) for each, share in self._identifier.rank(text) if each in codes]
        known = {code for code, _ in found}
        rest = [code for code in sources if code not in known]
        return found + [(code, 1.0 if len(sources) == 1 else 0.0) for code in rest]

    @cached_property
    def _identifier(self) -> Any:
        """Loaded when first needed, in some tenths of a second."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = {_base(code) for code in self.sources} & set(found.labels)
        if len(known) < 2:
            return None
        found.set_languages(sorted(known))
        return found


def language_name(code: str) -> str:
    """The English name of a language; the code where it is unknown."""
    return LANGUAGES.get(_base(code), code)


def _base(code: str) -> str:
    return code.split("-", maxsplit=1)[0].lower()


def _served(argument: str) -> ServedModel:
    given = _PAIR.fullmatch(argument)
    folder = find_folder(given[3] if given else argument)
    kind = stored_type(folder)
    if kind == EncoderConfig.model_type:
        config = load_config(folder, EncoderConfig)
        labels: Sequence[str] = config.label_names if config.id2label else ()
        return ServedModel(_name(folder), folder, "encoder", labels=tuple(labels))
    if kind != TranslationConfig.model_type:
        raise MacaronError(f"{folder}: a model of type {kind!r} cannot be served")
    stored = read_json(folder / "tokenizer_config.json", Record)
    pair = (given[1], given[2]) if given else (stored.get("source_lang"), stored.get("target_lang"))
    if not all(isinstance(code, str) and code for code in pair):
        raise UsageError(f"{folder}: the model does not name its languages. Name them: de-en={argument}")
    source, target = map(str, pair)
    return ServedModel(f"{source}-{target}", folder, "translation", source, target)


def _name(folder: Path) -> str:
    place = folder.resolve()
    return (run_of(folder) or (place.parent if place.name == "model" else place)).name
