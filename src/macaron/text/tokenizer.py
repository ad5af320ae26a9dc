"""The tokenizer that travels with a model: plain text in, plain text out.

A model folder holds ``tokenizer.json`` (the subword model) and ``tokenizer_config.json`` (the text pipeline,
the languages, the kind of model); `transformers.AutoTokenizer` reads it after ``import macaron``.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from macaron.errors import MacaronError
from macaron.text.backend import PipelineBackend
from macaron.text.files import read_lines
from macaron.text.fingerprint import digest
from macaron.text.pipeline import MOSES_SETTINGS, PipelineName, Side, State, make_pipeline
from macaron.text.subword import dictionary_bpe, dictionary_lookup, train_byte_bpe, train_word_bpe
from macaron.text.vocabulary import CLS, COMPLETE_SIZE, CONTINUED, EOS, Kind, read_codes, read_dictionary, specials


class MacaronTokenizer(PipelineBackend):
    """Subword tokenizer with its text pipeline, for translation models and encoders.

    Translation: ``text </s>``, no begin of sentence. Encoder: ``<cls> a </s>`` and ``<cls> a </s> b </s>``.

    Text is text: with ``kind="translation"`` (and in `encode_lines`) a literal ``</s>`` in the input is four
    characters, not a special token. An encoder called as a function does recognise them, for ``<mask>``; a
    dictionary without BPE codes looks up every word as it stands, as fairseq does, so these as well.

    :param kind: ``translation`` or ``encoder``
    :param pipeline: ``raw``, ``moses`` or ``spaces``, see `macaron.text.pipeline`
    :param source_lang: language code of the source side; ``moses`` needs it
    :param target_lang: language code of the target side; ``moses`` needs it
    :param lower: lower-case; for ``moses``
    :param normalize: normalise punctuation; for ``moses``
    :param segments: token type ids of the first and the second sentence; padding gets the first sentence's
    :param dictionary_size: number of ids that the model knows, where the subword model needs further symbols
    :param show_unknown: write ``<unk>`` for what has no id instead of nothing, also without special tokens
    """

    @classmethod
    def from_backend(cls, backend: Tokenizer, *, kind: Kind = "translation", **settings: Any) -> "MacaronTokenizer":
        """Wrap a subword model of `macaron.text.subword`; `settings` are those of the class."""
        end, start = specials(kind)[EOS], ""
        names = [(end, EOS)]
        first, second = settings.get("segments", (0, 1))
        if kind == "encoder":
            names.append((specials(kind)[CLS], CLS))
            start = f"{specials(kind)[CLS]}:{first} "
        single = f"{start}$A:{first} {end}:{first}"
        backend.post_processor = TemplateProcessing(
            single=single, pair=f"{single} $B:{second} {end}:{second}", special_tokens=names
        )
        return cls(tokenizer_object=backend, kind=kind, **settings)

    @classmethod
    def from_fairseq_dict(
        cls,
        dict_path: str | Path,
        codes: str | Path | None = None,
        *,
        pipeline: PipelineName = "spaces",
        kind: Kind = "translation",
        pad_to_multiple: int = 1,
        **settings: Any,
    ) -> "MacaronTokenizer":
        """Make the tokenizer of a fairseq model from its ``dict.txt`` and, for plain words, its BPE codes.

        With codes, words are split exactly as subword-nmt does. Without, they are looked up as they stand
        (``foo@@ bar``), and decoding joins at ``@@``. Encoders get the reference's segments: 1 for the first
        sentence and for padding, 0 for the second.

        :param settings: those of the class, but punctuation is normalised only if ``normalize`` says so: the usual
            IWSLT14 data was not
        """
        settings.setdefault("normalize", False)
        tokens = read_dictionary(dict_path, kind, pad_to_multiple)
        if pipeline == "raw":
            raise MacaronError(
                f"{dict_path}: a fairseq dictionary holds words, not bytes. Choose pipeline 'moses' or 'spaces'."
            )
        if codes is not None:
            backend = dictionary_bpe(tokens, read_codes(codes), kind)
            settings["dictionary_size"] = len(tokens)
        elif pipeline == "moses" and any(token.endswith(CONTINUED) for token in tokens):
            raise MacaronError(
                f"{dict_path} holds pieces of words ('{CONTINUED}'): plain text needs the BPE codes as well"
            )
        else:
            backend = dictionary_lookup(tokens, kind)
        if kind == "encoder":
            settings.setdefault("segments", (1, 0))
        return cls.from_backend(backend, kind=kind, pipeline=pipeline, **settings)

    @classmethod
    def train(
        cls,
        lines: Iterable[str] | Sequence[Path],
        vocab_size: int,
        *,
        target_lines: Iterable[str] | Sequence[Path] = (),
        pipeline: PipelineName = "raw",
        kind: Kind = "translation",
        prepared: bool = False,
        pad_to_multiple: int = 1,
        **settings: Any,
    ) -> "MacaronTokenizer":
        """Train a joint subword vocabulary on lines of text, or on the files whose `Path` is given.

        The same lines give the same tokenizer. Counting and merging use all cores; the ``moses`` pipeline
        runs in this process, so a big corpus is better prepared in several and given as `prepared`.

        No character of new text is lost: with ``raw`` all are bytes; otherwise letters that the training text lacks are
        spelled in bytes, or, in a vocabulary of less than 1000 entries, which has no room for these, come back as
        ``<unk>``. (``moses`` itself drops ASCII's control characters.)

        :param lines: plain text of the source side, or of all there is
        :param vocab_size: size of the vocabulary, special tokens included
        :param target_lines: plain text of the target side, in its own language
        :param prepared: the lines have been through the pipeline already
        :param pad_to_multiple: pad the vocabulary to a multiple of this with entries no text reaches
        :param settings: those of the class
        """
        text = make_pipeline(pipeline, **{name: settings[name] for name in MOSES_SETTINGS if name in settings})
        both: tuple[tuple[Side, Iterable[str] | Sequence[Path]], ...] = (
            ("source", lines),
            ("target", target_lines),
        )
        stream = chain.from_iterable(
            (line if prepared else text.encode(line, side) for line in _lines_of(given)) for side, given in both
        )
        train_bpe = train_byte_bpe if pipeline == "raw" else train_word_bpe
        if pipeline != "raw" and vocab_size < COMPLETE_SIZE:
            settings.setdefault("show_unknown", True)
        backend = train_bpe(stream, vocab_size, kind, pad_to_multiple=pad_to_multiple)
        return cls.from_backend(backend, kind=kind, pipeline=pipeline, **settings)

    def encode_lines(
        self,
        lines: Sequence[str],
        side: Side = "source",
        *,
        state: State = "raw",
        add_special_tokens: bool = True,
    ) -> list[list[int]]:
        """Encode the lines of a corpus, on all cores, without padding, truncation or warnings.

        :param side: whose language the lines are in
        :param state: ``moses`` for lines that are tokenised already
        :param add_special_tokens: end with ``</s>`` (encoders: begin with ``<cls>`` too)
        """
        prepared = [self.text_pipeline.encode(line, side, state) for line in lines]
        backend = self.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        try:
            encodings = backend.encode_batch_fast(prepared, add_special_tokens=add_special_tokens)
        except TypeError:  # its answer to lone surrogates, which are no Unicode text
            for line in lines:
                _refuse_surrogates(line)
            raise
        return [self._known(encoding.ids) for encoding in encodings]

    def decode_lines(self, batch: Iterable[Sequence[int]], side: Side = "target", *, state: State = "raw") -> list[str]:
        """Turn sequences of ids into text without special tokens; state ``moses`` keeps it tokenised."""
        return [self.text_pipeline.decode(self._join(ids, True), side, state) for ids in batch]

    def with_segments(self, first: int) -> "MacaronTokenizer":
        """The same for an encoder whose first sentence has this segment id, 0 or 1, and whose second has the other.

        The fingerprint of another segment rule is another: a model and its tokenizer must agree in it.
        """
        names = (*MOSES_SETTINGS, "pipeline", "dictionary_size", "show_unknown")
        settings = {name: getattr(self, name) for name in names}
        copy = Tokenizer.from_str(self.backend_tokenizer.to_str())
        return self.from_backend(copy, kind=self.kind, segments=(first, 1 - first), **settings)

    def fingerprint(self) -> str:
        """Return a SHA-256 over all that decides how text becomes ids and ids become text."""
        settings = {
            "kind": self.kind,
            "pipeline": self.pipeline,
            "segments": self.segments if self.kind == "encoder" else None,
            "dictionary_size": self.dictionary_size,
        }
        if self.pipeline == "moses":
            settings |= {name: getattr(self, name) for name in MOSES_SETTINGS}
        if self.show_unknown:  # named only where it is, so that older fingerprints stay
            settings["show_unknown"] = True
        return digest(self.backend_tokenizer, settings)


def verify(tokenizer: MacaronTokenizer, config: Any) -> None:
    """Refuse a tokenizer that is not the one a model was trained with (``config`` is the model's)."""
    if len(tokenizer) > config.vocab_size:
        raise MacaronError(
            f"the tokenizer has {len(tokenizer)} tokens, the model knows {config.vocab_size}: they do not "
            "belong together. Use the tokenizer files that were saved with the weights."
        )
    expected = getattr(config, "tokenizer_fingerprint", None)
    if expected is not None and expected != tokenizer.fingerprint():
        raise MacaronError(
            f"the tokenizer (fingerprint {tokenizer.fingerprint()[:12]}) is not the one that this model was "
            f"trained with ({expected[:12]}). Use the tokenizer files that were saved with the weights."
        )


def _refuse_surrogates(line: str) -> None:
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        raise MacaronError(f"{line[:80]!r} is not valid Unicode (it holds lone surrogates)") from None


def _lines_of(given: Iterable[str] | Sequence[Path]) -> Iterator[str]:
    if isinstance(given, str | Path):
        raise MacaronError(f"expected lines of text or a list of Paths, not {given!r} alone")
    for item in given:
        if isinstance(item, Path):
            yield from read_lines(item)
        else:
            yield item
