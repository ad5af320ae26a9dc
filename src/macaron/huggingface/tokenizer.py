"""The tokenizer in transformers' interface: ``AutoTokenizer``, padding and truncation, tensors, offsets."""

from pathlib import Path
from typing import Any, Self

from tokenizers import Encoding, Tokenizer
from transformers import BatchEncoding, TokenizersBackend

from macaron.errors import MacaronError
from macaron.files import write_text
from macaron.seal import check, seal
from macaron.text.pipeline import SETTINGS, Side, State
from macaron.text.tokenizer import CLASS_NAME, TOKENIZER_FILES, MacaronTokenizer

#: What `from_pretrained` passes along about the origin of the files, which is not saved.
_TRANSIENT = ("is_local", "local_files_only", "revision", "_from_auto", "_commit_hash", "trust_remote_code")


class HFTokenizer(TokenizersBackend, MacaronTokenizer):
    """`macaron.text.MacaronTokenizer` for transformers.

    Called as a function, one for encoders recognises special tokens in the text, such as ``<mask>``; one for
    translation does not. Its settings are those of `MacaronTokenizer` and transformers' own.
    """

    vocab_files_names = {  # noqa: RUF012 - transformers declares it so
        "tokenizer_file": "tokenizer.json",
        "target_tokenizer_file": "target_tokenizer.json",
    }
    padding_side = "right"

    def __init__(
        self,
        tokenizer_object: Tokenizer | None = None,
        *,
        tokenizer_file: str | None = None,
        target_tokenizer_file: str | None = None,
        target_backend: Tokenizer | None = None,
        **settings: Any,
    ) -> None:
        backend = tokenizer_object or Tokenizer.from_file(str(tokenizer_file))
        if target_tokenizer_file is not None:
            target_backend = Tokenizer.from_file(target_tokenizer_file)
        ours = {name: settings[name] for name in SETTINGS if name in settings}
        MacaronTokenizer.__init__(self, backend, target_backend=target_backend, **ours)
        self._side: Side = "source"
        self._backends = (backend, target_backend or backend)
        # What is handed to transformers' constructor is saved: only what means something here.
        theirs = {name: value for name, value in settings.items() if name not in SETTINGS}
        stored = self.stored_settings()
        if "split_special_tokens" in theirs:
            stored["split_special_tokens"] = theirs["split_special_tokens"]
        TokenizersBackend.__init__(self, tokenizer_object=backend, **{**theirs, **stored})
        for key in _TRANSIENT:
            self.init_kwargs.pop(key, None)

    @classmethod
    def wrap(cls, tokenizer: MacaronTokenizer) -> Self:
        """The same tokenizer for transformers."""
        own = tokenizer.target_backend
        return cls(tokenizer.backend_tokenizer, target_backend=own, **tokenizer.stored_settings())

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """As in transformers; the files of a local folder are verified."""
        check(Path(pretrained_model_name_or_path, kwargs.get("subfolder") or ""), TOKENIZER_FILES)
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Leave ``tokenizer.json`` unchanged: transformers rebuilds the BPE of a class with a constructor."""
        return kwargs

    __len__ = MacaronTokenizer.__len__
    get_vocab = MacaronTokenizer.get_vocab

    @property
    def vocab_size(self) -> int:
        """Number of ids that the model knows."""
        return len(self)

    @property
    def pad_token_type_id(self) -> int:
        """Token type id of padding."""
        return self.segments[0]

    def _switch_to_input_mode(self) -> None:
        self._side = "source"
        self._tokenizer = self._backends[0]

    def _switch_to_target_mode(self) -> None:
        self._side = "target"
        self._tokenizer = self._backends[1]

    def _encode_plus(self, text: Any, text_pair: Any = None, **kwargs: Any) -> BatchEncoding[Any]:
        tokenised = kwargs.get("is_split_into_words") and self.pipeline == "moses"
        state: State = "moses" if tokenised else "raw"
        if kwargs.get("return_offsets_mapping") and self.pipeline not in ("raw", "plain"):
            raise MacaronError(f"the {self.pipeline} pipeline changes the text: there are no offsets into it")
        return super()._encode_plus(self._prepare_all(text, state), self._prepare_all(text_pair, state), **kwargs)

    def _prepare_all(self, text: Any, state: State) -> Any:
        """Send every string of the nested lists that transformers accepts through the pipeline."""
        if isinstance(text, str):
            return self.prepare(text, self._side, state, recognise_specials=not self.split_special_tokens)
        if isinstance(text, list | tuple):
            return type(text)(self._prepare_all(item, state) for item in text)
        return text

    def _convert_encoding(self, encoding: Encoding, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], list[Encoding]]:
        output, encodings = super()._convert_encoding(encoding, *args, **kwargs)
        output["input_ids"] = [self.known(ids) for ids in output["input_ids"]]
        if "offset_mapping" in output and self.pipeline == "raw":
            # The raw pipeline has put one space in front of the text.
            output["offset_mapping"] = [
                [(max(start - 1, 0), max(end - 1, 0)) for start, end in offsets] for offsets in output["offset_mapping"]
            ]
        return output, encodings

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        if isinstance(token_ids, dict):
            token_ids = token_ids["input_ids"]
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        side: Side = "target" if self.kind == "translation" else "source"
        return self.text_pipeline.decode(self.join(ids, skip_special_tokens), side)

    def _upload_modified_files(self, working_dir: Any, repo_id: str, *args: Any, **kwargs: Any) -> Any:
        from macaron.huggingface.base import read_card, write_card  # and with it transformers' models

        write_card(working_dir, read_card(self.name_or_path), repo_id, kwargs.get("token"))
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    def _save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        # The padding and truncation of the last call are no part of the tokenizer.
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        files: tuple[str, ...] = super()._save_pretrained(save_directory, *args, **kwargs)
        if self.target_backend is not None:
            path = Path(save_directory) / self.vocab_files_names["target_tokenizer_file"]
            write_text(path, self.target_backend.to_str(pretty=True))
            files = (*files, str(path))
        seal(save_directory, TOKENIZER_FILES)  # it is called last, and before an upload
        return files


# The name that tokenizer_config.json stores and AutoTokenizer looks up. Pickle uses the qualified name, which stays.
HFTokenizer.__name__ = CLASS_NAME
