"""A transformers tokenizer whose text goes through a pipeline on its way to the subword model and back."""

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Encoding
from tokenizers.models import WordLevel
from transformers import BatchEncoding, TokenizersBackend

from macaron.errors import MacaronError
from macaron.text.pipeline import PipelineName, Side, State, make_pipeline
from macaron.text.subword import ghost_ids
from macaron.text.vocabulary import CLS, CONTINUED, EOS, MASK, PAD, UNK, Kind, specials

#: What `from_pretrained` passes along about where it found the files: no business of the saved folder.
_TRANSIENT = ("is_local", "local_files_only", "revision", "_from_auto", "_commit_hash", "trust_remote_code")


class PipelineBackend(TokenizersBackend):
    """What transformers calls, and how it becomes ids and text.

    The settings are stored in ``tokenizer_config.json``; `macaron.text.MacaronTokenizer` documents them.
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json"}  # noqa: RUF012 - transformers declares it so
    padding_side = "right"

    def __init__(
        self,
        *,
        kind: Kind = "translation",
        pipeline: PipelineName = "raw",
        source_lang: str | None = None,
        target_lang: str | None = None,
        lower: bool = True,
        normalize: bool = True,
        segments: Sequence[int] = (0, 1),
        dictionary_size: int | None = None,
        show_unknown: bool = False,
        **kwargs: Any,
    ) -> None:
        names = specials(kind)
        self.kind = kind
        self.pipeline = pipeline
        self.source_lang, self.target_lang = source_lang, target_lang
        self.lower, self.normalize = lower, normalize
        self.segments = list(segments)
        self.dictionary_size = dictionary_size
        self.show_unknown = show_unknown
        self.text_pipeline = make_pipeline(pipeline, source_lang, target_lang, lower, normalize)
        self._side: Side = "source"
        self._ghosts: dict[int, int] = {}

        # What is handed to transformers' constructor is what it saves: only what means something here.
        kwargs |= {"kind": kind, "pipeline": pipeline, "source_lang": source_lang, "target_lang": target_lang}
        kwargs |= {"pad_token": names[PAD], "eos_token": names[EOS], "unk_token": names[UNK]}
        kwargs["extra_special_tokens"] = [names[0]]
        kwargs.setdefault("split_special_tokens", kind == "translation")
        if pipeline == "moses":
            kwargs |= {"lower": lower, "normalize": normalize}
        if kind == "encoder":
            kwargs |= {"cls_token": names[CLS], "sep_token": names[EOS], "mask_token": names[MASK]}
            kwargs["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
            kwargs["segments"] = self.segments
        if dictionary_size is not None:
            kwargs["dictionary_size"] = dictionary_size
        if show_unknown:
            kwargs["show_unknown"] = True
        super().__init__(**kwargs)
        for key in _TRANSIENT:
            self.init_kwargs.pop(key, None)
        if dictionary_size is not None:
            self._ghosts = ghost_ids(self.backend_tokenizer, dictionary_size)

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Keep ``tokenizer.json`` as it is: transformers rebuilds the BPE of a class with a constructor."""
        return kwargs

    # Sizes

    def __len__(self) -> int:
        return self.dictionary_size or self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def vocab_size(self) -> int:
        """Number of ids that the model knows."""
        return len(self)

    def get_vocab(self) -> dict[str, int]:
        """Return the tokens and their ids."""
        vocabulary = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return {token: index for token, index in vocabulary.items() if index < len(self)}

    @property
    def pad_token_type_id(self) -> int:
        """Token type id of padding."""
        return self.segments[0]

    # Text to ids

    def _switch_to_input_mode(self) -> None:
        self._side = "source"

    def _switch_to_target_mode(self) -> None:
        self._side = "target"

    def _encode_plus(self, text: Any, text_pair: Any = None, **kwargs: Any) -> BatchEncoding[Any]:
        tokenised = kwargs.get("is_split_into_words") and self.pipeline == "moses"
        state: State = "moses" if tokenised else "raw"
        if kwargs.get("return_offsets_mapping") and self.pipeline != "raw":
            raise MacaronError(f"the {self.pipeline} pipeline changes the text: there are no offsets into it")
        return super()._encode_plus(self._prepare(text, state), self._prepare(text_pair, state), **kwargs)

    def _prepare(self, text: Any, state: State) -> Any:
        """Send every string of the nested lists that transformers accepts through the pipeline."""
        if isinstance(text, str):
            return self._keep_specials(text, state)
        if isinstance(text, list | tuple):
            return type(text)(self._prepare(item, state) for item in text)
        return text

    def _keep_specials(self, text: str, state: State) -> str:
        """Through the pipeline, in which special tokens that are to be recognised go as words that it leaves alone."""
        stand_ins: dict[str, str] = {}
        if self.pipeline == "moses" and not self.split_special_tokens:
            for index, token in enumerate(specials(self.kind)):
                if token in text:
                    word = f"zqx{chr(ord('a') + index)}xqz"
                    while word in text.lower():
                        word += "z"
                    text = text.replace(token, word)
                    stand_ins[word] = token
        prepared = self.text_pipeline.encode(text, self._side, state)
        for word, token in stand_ins.items():
            prepared = prepared.replace(word, token)
        return prepared

    def _convert_encoding(self, encoding: Encoding, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], list[Encoding]]:
        output, encodings = super()._convert_encoding(encoding, *args, **kwargs)
        output["input_ids"] = [self._known(ids) for ids in output["input_ids"]]
        if "offset_mapping" in output:
            # The raw pipeline has put one space in front of the text.
            output["offset_mapping"] = [
                [(max(start - 1, 0), max(end - 1, 0)) for start, end in offsets] for offsets in output["offset_mapping"]
            ]
        return output, encodings

    def _known(self, ids: list[int]) -> list[int]:
        """Replace the subword model's own symbols by what the dictionary has for them."""
        if self._ghosts and max(ids, default=0) >= len(self):
            return [self._ghosts.get(index, index) for index in ids]
        return ids

    # Ids to text

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        if isinstance(token_ids, dict):
            token_ids = token_ids["input_ids"]
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        side: Side = "target" if self.kind == "translation" else "source"
        return self.text_pipeline.decode(self._join(ids, skip_special_tokens), side)

    def _join(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        """Put the pieces together to prepared text."""
        # Labels hold -100 where nothing is to be predicted.
        size = len(self)
        known = [int(index) for index in ids if 0 <= index < size]
        if skip_special_tokens and self.show_unknown:
            ordinary = len(specials(self.kind))
            known = [index for index in known if index >= ordinary or index == UNK]
            skip_special_tokens = False
        text = self.backend_tokenizer.decode(known, skip_special_tokens=skip_special_tokens)
        if isinstance(self.backend_tokenizer.model, WordLevel):
            text = (text + " ").replace(CONTINUED + " ", "").rstrip(" ")
        return text

    def _save_pretrained(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        # The padding and truncation of the last call are no part of the tokenizer.
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        return super()._save_pretrained(*args, **kwargs)
