"""The tokenizer that is saved with a model: plain text in, plain text out.

A model folder holds ``tokenizer.json`` (the subword model) and ``tokenizer_config.json`` (the text pipeline, the
languages, the kind of model). `transformers.AutoTokenizer` reads both after ``import macaron``, as
`macaron.huggingface.HFTokenizer`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from macaron.errors import MacaronError, require
from macaron.files import write_text
from macaron.json_files import Record, conforming, read_json
from macaron.limits import LARGEST_VOCABULARY
from macaron.seal import check, seal
from macaron.settings import load_toml
from macaron.text.fingerprint import fingerprint, patterns
from macaron.text.pipeline import (
    MOSES_SETTINGS,
    SETTINGS,
    Pipeline,
    Side,
    State,
    TokenizerSettings,
    spans_of_original,
)
from macaron.text.subword import RAW_PATTERN, fairseq_backend, trained_backend
from macaron.text.vocabulary import CLS, CONTINUED, EOS, MASK, PAD, UNK, TokenizerKind, ghost_ids, specials, stand_ins

#: The name under which tokenizer_config.json stores the class.
CLASS_NAME = "MacaronTokenizer"
_TARGET = "target_tokenizer.json"  # only where the target side has a subword model of its own
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", _TARGET)
#: Bytes of tokenizer.json.
_LARGEST = 1 << 27
#: The types of its parts that are read, in our tokenizers and in those of converted models.
_TYPES: dict[str, dict[str, list[str]]] = load_toml(Path(__file__).with_suffix(".toml"))[0]
#: The splitting steps, see `macaron.text.subword`.
_SPLITS = (["CharDelimiterSplit", " "], ["Split", json.dumps({"Regex": RAW_PATTERN}), "ByteLevel", ""])
#: SentencePiece's rule for spaces, the only replacement.
SPACES = " {2,}", " "
_SURROGATE = re.compile("[\ud800-\udfff]")


class MacaronTokenizer(TokenizerSettings):
    """Subword tokenizer with its text pipeline, for all kinds of models.

    Translation: ``text </s>``, no begin of sentence. Encoder: ``<cls> a </s>`` and ``<cls> a </s> b </s>``. Language
    model: ``</s> text``, which goes on; padding is on the left.

    Text is text: a literal ``</s>`` in the input is four characters, not a special token, unless special tokens are to
    be recognised. (A dictionary without BPE codes looks up every word unchanged, as fairseq does, special tokens too.)

    :param target_backend: the subword model of the target side, if it has one of its own, with the same vocabulary
    """

    def __init__(self, backend: Tokenizer, target_backend: Tokenizer | None = None, **settings: Any) -> None:
        TokenizerSettings.__init__(self, **settings)
        self.target_backend = target_backend
        self.segments, self.tags = list(self.segments), list(self.tags)
        require(len(self.segments) == 2, f"segments must be two numbers, not {self.segments}")
        self._tokenizer = backend
        self.special_names = specials(self.kind)
        moses = {name: getattr(self, name) for name in MOSES_SETTINGS} if self.pipeline == "moses" else {}
        self.text_pipeline = Pipeline(self.pipeline, **moses)
        self._ghosts = {} if self.dictionary_size is None else ghost_ids(backend, self.dictionary_size)

    # Making, saving, loading

    @classmethod
    def from_backend(cls, backend: Tokenizer, *, kind: TokenizerKind = "translation", **settings: Any) -> Self:
        """Wrap a subword model of `macaron.text.subword`; `settings` are those of the class."""
        end, start = specials(kind)[EOS], ""
        names = [(end, EOS)]
        first, second = settings.get("segments", (0, 1))
        if kind == "encoder":
            names.append((specials(kind)[CLS], CLS))
            start = f"{specials(kind)[CLS]}:{first} "
        single = f"{start}$A:{first} {end}:{first}"
        pair = f"{single} $B:{second} {end}:{second}"
        if kind == "language":
            single, pair = f"{end} $A", f"{end} $A {end} $B"
        template = TemplateProcessing(single=single, pair=pair, special_tokens=names)
        for each in filter(None, (backend, settings.get("target_backend"))):
            each.post_processor = template
        return cls(backend, kind=kind, **settings)

    @classmethod
    def from_fairseq_dict(cls, dict_path: str | Path, codes: str | Path | None = None, **settings: Any) -> Self:
        """The tokenizer of a fairseq model, see `macaron.text.subword.fairseq_backend`."""
        backend, settings = fairseq_backend(dict_path, codes, **settings)
        return cls.from_backend(backend, **settings)

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, **settings: Any) -> Self:
        """Train a tokenizer, see `macaron.text.subword.trained_backend`."""
        backend, settings = trained_backend(lines, vocab_size, **settings)
        return cls.from_backend(backend, **settings)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load the tokenizer of a folder."""
        folder = Path(folder)
        check(folder, TOKENIZER_FILES)
        path = folder / "tokenizer_config.json"
        stored: Record = read_json(path, Record)
        settings = conforming(TokenizerSettings, {name: stored[name] for name in SETTINGS if name in stored}, path)
        if stored.get("tokenizer_class") != CLASS_NAME:
            raise MacaronError(f"tokenizer_config.json: class {stored.get('tokenizer_class')!r}, not {CLASS_NAME!r}")
        converted = settings.pipeline == "plain"
        backend = _read_backend(folder / "tokenizer.json", converted)
        target = _read_backend(folder / _TARGET, converted) if (folder / _TARGET).is_file() else None
        if target is not None and target.get_vocab() != backend.get_vocab():
            raise MacaronError(f"{folder / _TARGET}: another vocabulary than that of tokenizer.json")
        ids = set(backend.get_vocab().values())
        largest = max(ids, default=-1)
        if largest >= LARGEST_VOCABULARY:  # tokenizers would write all ids below it
            raise MacaronError(
                f"{folder / 'tokenizer.json'}: an id is {largest:,}; the limit is {LARGEST_VOCABULARY:,}"
            )
        if largest >= len(ids):
            raise MacaronError(
                f"{folder / 'tokenizer.json'}: damaged, of {largest + 1:,} ids {len(ids):,} have a token"
            )
        return cls(backend, target, **vars(settings))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``, which transformers reads, too."""
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        write_text(Path(folder) / "tokenizer.json", self._tokenizer.to_str(pretty=True))
        if self.target_backend is not None:
            write_text(Path(folder) / _TARGET, self.target_backend.to_str(pretty=True))
        stored = {**self.stored_settings(), "backend": "tokenizers", "tokenizer_class": CLASS_NAME}
        text = json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=False)
        write_text(Path(folder) / "tokenizer_config.json", text + "\n")
        seal(folder, TOKENIZER_FILES)

    def stored_settings(self) -> dict[str, Any]:
        """The settings of ``tokenizer_config.json``: ours where they mean something, and what transformers needs."""
        encoder, names = self.kind == "encoder", self.special_names
        meant = ["kind", "pipeline", "source_lang", "target_lang", "model_max_length"]
        meant += ["lower", "normalize"] if self.pipeline == "moses" else []
        meant += ["segments"] if encoder else []
        meant += [name for name in ("dictionary_size", "show_unknown", "tags") if getattr(self, name)]
        stored: dict[str, Any] = {
            **{name: getattr(self, name) for name in meant},
            "pad_token": names[PAD],
            "eos_token": names[EOS],
            "unk_token": names[UNK],
            "extra_special_tokens": [names[0], *self.tags],
            "split_special_tokens": not encoder,
        }
        if encoder:
            inputs = ["input_ids", "token_type_ids", "attention_mask"]
            stored |= {"cls_token": names[CLS], "sep_token": names[EOS], "mask_token": names[MASK]}
            stored["model_input_names"] = inputs
        if self.kind == "language":
            stored |= {"bos_token": names[EOS], "padding_side": "left"}
        return stored

    def changed(self, backend: Tokenizer | None = None, **settings: Any) -> Self:
        """A copy with other settings, or with another subword model."""
        kept = {name: getattr(self, name) for name in SETTINGS}
        return self.from_backend(backend or Tokenizer.from_str(self._tokenizer.to_str()), **{**kept, **settings})

    # Sizes and identity

    @property
    def backend_tokenizer(self) -> Tokenizer:
        """The subword model."""
        return self._tokenizer

    def backend_of(self, side: Side) -> Tokenizer:
        """The subword model of a side."""
        return self.target_backend if side == "target" and self.target_backend is not None else self._tokenizer

    def __len__(self) -> int:
        return self.dictionary_size or self._tokenizer.get_vocab_size(with_added_tokens=True)

    def get_vocab(self) -> dict[str, int]:
        """The tokens and their ids."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        return {token: index for token, index in vocabulary.items() if index < len(self)}

    def fingerprint(self) -> str:
        """A digest of all that decides how text becomes ids and ids become text, see `macaron.text.fingerprint`."""
        return fingerprint(self)

    # Text to ids

    def encode_lines(
        self,
        lines: Sequence[str],
        side: Side = "source",
        *,
        state: State = "raw",
        add_special_tokens: bool = True,
        recognise_specials: bool = False,
    ) -> list[list[int]]:
        """Encode lines of text, on all cores, without padding, truncation or warnings.

        :param add_special_tokens: end with ``</s>`` (encoders: begin with ``<cls>`` too)
        :param recognise_specials: take special tokens in the text, such as ``<mask>``, as such
        """
        prepared = [self.prepare(line, side, state, recognise_specials) for line in lines]
        backend = self.backend_of(side)
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = not recognise_specials
        try:
            encodings = backend.encode_batch_fast(prepared, add_special_tokens=add_special_tokens)
        except TypeError:  # raised for lone surrogates
            wrong = next((line for line in lines if _SURROGATE.search(line)), "")
            raise MacaronError(f"{wrong[:80]!r} is not valid Unicode (it holds lone surrogates)") from None
        return [self.known(encoding.ids) for encoding in encodings]

    def token_spans(self, lines: Sequence[str], side: Side = "source") -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The token ids of plain lines, with their end, and the characters of the line that the others stand for."""
        prepared = [self.prepare(line, side, "raw", False) for line in lines]
        backend = self.backend_of(side)
        backend.encode_special_tokens = True
        return [
            (self.known(each.ids), spans_of_original(line, text, each.offsets[:-1], self.pipeline))
            for line, text, each in zip(lines, prepared, backend.encode_batch(prepared), strict=True)
        ]

    def prepare(self, text: str, side: Side, state: State, recognise_specials: bool) -> str:
        """Send text through the pipeline; special tokens to be recognised go as words that it leaves alone."""
        words: dict[str, str] = {}
        if recognise_specials and self.pipeline == "moses":
            text, words = stand_ins(text, (*self.special_names, *self.tags))
        prepared = self.text_pipeline.encode(text, side, state)
        for word, token in words.items():
            prepared = prepared.replace(word, token)
        return prepared

    def known(self, ids: list[int]) -> list[int]:
        """Replace the subword model's own symbols by the dictionary's entries for them."""
        if self._ghosts and max(ids, default=0) >= len(self):
            return [self._ghosts.get(index, index) for index in ids]
        return ids

    # Ids to text

    def decode_lines(self, batch: Iterable[Sequence[int]], side: Side = "target", *, state: State = "raw") -> list[str]:
        """Turn sequences of ids into text without special tokens; state ``moses`` keeps it tokenised."""
        return [self.text_pipeline.decode(self.join(ids, True), side, state) for ids in batch]

    def join(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        """Join the pieces to prepared text; ids that the model does not know (labels of -100) are left out."""
        size = len(self)
        known = [int(index) for index in ids if 0 <= index < size]
        if skip_special_tokens and self.show_unknown:
            skipped = {*range(len(self.special_names)), *map(self._tokenizer.token_to_id, self.tags)} - {UNK}
            known = [index for index in known if index not in skipped]
            skip_special_tokens = False
        text = self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens)
        if isinstance(self._tokenizer.model, WordLevel):
            text = (text + " ").replace(CONTINUED + " ", "").rstrip(" ")
        return text


def _read_backend(path: Path, converted: bool) -> Tokenizer:
    """Read a subword model of known parts. `tokenizers` panics at some others, and with some it fills the memory."""
    try:
        content = read_json(path, Record, largest=_LARGEST)
    except MacaronError as error:  # as for what `tokenizers` cannot read
        raise ValueError(error) from None
    with suppress(LookupError, TypeError, AttributeError):
        # Only GPT-2's, converted, has none: it adds no special tokens.
        single = content["post_processor"]["single"] if content["post_processor"] or not converted else []
        one_text = len(single) <= 3 and all(each.get("Sequence", {}).get("id") != "B" for each in single)
        if one_text and (convertible(content) if converted else _ours(content)):
            return Tokenizer.from_file(str(path))
    raise ValueError(f"{path}: it has parts that no tokenizer of Macaron has")


def _ours(content: Record) -> bool:
    model = content["model"]
    plain = not model.get("dropout") and not model.get("continuing_subword_prefix")
    known = all((content[name] or {"type": "none"})["type"] in types for name, types in _TYPES["ours"].items())
    return known and plain and patterns(content["pre_tokenizer"]) in _SPLITS


def convertible(content: Record) -> bool:
    """Whether the content of a foreign tokenizer.json, but for its post-processor, has known parts alone."""
    parts: list[tuple[str, Any]] = []
    for name in _TYPES["converted"]:
        part = content.get(name) or {"type": "Sequence"}
        inner = next((each for each in part.values() if isinstance(each, list)), [])
        parts += [(name, each) for each in (inner if part["type"] == "Sequence" else [part])]
    model = content["model"]
    small = (
        len(model.get("continuing_subword_prefix") or "") < 8 and (model.get("max_input_chars_per_word") or 0) < 1000
    )
    replaced = [(each["pattern"].get("Regex"), each["content"]) for _, each in parts if each["type"] == "Replace"]
    known = all(each["type"] in _TYPES["converted"][name] for name, each in parts)
    return known and small and not model.get("dropout") and set(replaced) <= {SPACES}
