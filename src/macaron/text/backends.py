"""Subword models of tokenizers, with their settings: trained on text, or made of fairseq's files."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.text.pipeline import MOSES_SETTINGS, PipelineName, Side, make_pipeline
from macaron.text.subword import dictionary_bpe, dictionary_lookup, train_byte_bpe, train_word_bpe
from macaron.text.vocabulary import COMPLETE_SIZE, CONTINUED, Kind, read_codes, read_dictionary


def fairseq_backend(
    dict_path: str | Path,
    codes: str | Path | None = None,
    *,
    pipeline: PipelineName = "spaces",
    kind: Kind = "translation",
    pad_to_multiple: int = 1,
    **settings: Any,
) -> tuple[Tokenizer, dict[str, Any]]:
    """The subword model of a fairseq ``dict.txt`` and, for plain words, its BPE codes.

    With codes, words are split exactly as subword-nmt does. Without, they are looked up unchanged (``foo@@ bar``), and
    decoding joins at ``@@``. Encoders get the reference's segments: 1 for the first sentence and for padding, 0 for
    the second.

    :param settings: of `MacaronTokenizer`, but punctuation is normalised only if ``normalize`` says so: the usual
        IWSLT14 data was not
    :returns: the subword model and the tokenizer's settings
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
        raise MacaronError(f"{dict_path} holds pieces of words ('{CONTINUED}'): plain text needs the BPE codes as well")
    else:
        backend = dictionary_lookup(tokens, kind)
    if kind == "encoder":
        settings.setdefault("segments", (1, 0))
    return backend, {"kind": kind, "pipeline": pipeline, **settings}


def trained_backend(
    lines: Iterable[str] | Sequence[Path],
    vocab_size: int,
    *,
    target_lines: Iterable[str] | Sequence[Path] = (),
    pipeline: PipelineName = "raw",
    kind: Kind = "translation",
    prepared: bool = False,
    pad_to_multiple: int = 1,
    **settings: Any,
) -> tuple[Tokenizer, dict[str, Any]]:
    """Train a joint subword vocabulary on lines of text, or on the files whose `Path` is given.

    The same lines give the same tokenizer. Counting and merging use all cores; the ``moses`` pipeline runs in this
    process, so a big corpus is better prepared in several and given as `prepared`.

    No character of new text is lost: with ``raw`` all are bytes; otherwise letters that the training text lacks are
    spelled in bytes, or, in a vocabulary of less than 1000 entries, which has no room for these, come back as
    ``<unk>``. (``moses`` itself drops ASCII's control characters.)

    :param lines: plain text of the source side, or of both
    :param vocab_size: size of the vocabulary, special tokens included
    :param target_lines: plain text of the target side, in its own language
    :param prepared: the lines have been through the pipeline already
    :param pad_to_multiple: pad the vocabulary to a multiple of this with entries that no text reaches
    :param settings: of `MacaronTokenizer`
    :returns: the subword model and the tokenizer's settings
    """
    text = make_pipeline(pipeline, **{name: settings[name] for name in MOSES_SETTINGS if name in settings})
    both: tuple[tuple[Side, Iterable[str] | Sequence[Path]], ...] = (("source", lines), ("target", target_lines))
    stream = chain.from_iterable(
        (line if prepared else text.encode(line, side) for line in _lines_of(given)) for side, given in both
    )
    train_bpe = train_byte_bpe if pipeline == "raw" else train_word_bpe
    if pipeline != "raw" and vocab_size < COMPLETE_SIZE:
        settings.setdefault("show_unknown", True)
    backend = train_bpe(stream, vocab_size, kind, pad_to_multiple=pad_to_multiple)
    return backend, {"kind": kind, "pipeline": pipeline, **settings}


def _lines_of(given: Iterable[str] | Sequence[Path]) -> Iterator[str]:
    if isinstance(given, str | Path):
        raise MacaronError(f"expected lines of text or a list of Paths, not {given!r} alone")
    for item in given:
        if isinstance(item, Path):
            yield from read_lines(item)
        else:
            yield item
