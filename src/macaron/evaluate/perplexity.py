"""The perplexity of a language model, per token and per word."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from macaron.data.prepared import PreparedText, Split
from macaron.data.settings import HEADING
from macaron.decode.forced import load_folder
from macaron.decode.search import batches
from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.models.translation import LanguageModel
from macaron.nn.loss import SmoothedCrossEntropy
from macaron.text.fingerprint import of_ids
from macaron.text.pipeline import State
from macaron.text.sentence_splitter import splitter
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import EOS

#: Tokens in a batch, padding included.
BATCH_TOKENS = {"cpu": 4096, "cuda": 32_768}
DEFINITION = (
    "exp of the negative log-likelihood of all tokens and document ends, divided by their number (per token), or by "
    "the number of words and document ends (per word). Words are separated by white space."
)


#: The tokens of a document, without special ones, and the number of its words.
Document = tuple[list[int], int]


def evaluate_language_model(
    path: Path,
    data: Path | None,
    split: Split,
    source: Path | None,
    *,
    headings: bool = False,
    device: str = "auto",
    dtype: str | None = None,
    batch_tokens: int | None = None,
) -> dict[str, float]:
    """The perplexities of a model on prepared documents, or on a file of plain text, and what they are made of.

    Long documents are cut into blocks that the model can take, each beginning with the token before it.

    :param source: a paragraph a line; blank lines, or with ``headings`` WikiText's headings, begin documents
    """
    model, tokenizer = load_folder(path, device, dtype, LanguageModel)
    longest = model.config.max_position_embeddings
    if source is not None:
        documents = list(text_documents(source, tokenizer, headings))
    else:
        assert data is not None
        documents = list(prepared_documents(PreparedText.open(data), split, tokenizer))
    if not documents:
        raise MacaronError(f"{source or data}: no text to evaluate on")
    texts, targets = [], []
    for document in documents:
        whole = [EOS, *document[0], EOS]
        for start in range(0, len(whole) - 1, longest):
            stop = min(start + longest, len(whole) - 1)
            texts.append(whole[start:stop])
            targets.append(whole[start + 1 : stop + 1])
    loss, total = SmoothedCrossEntropy(0.0, model.pad), 0.0
    with torch.inference_mode():
        for rows in batches([len(text) for text in texts], batch_tokens or BATCH_TOKENS.get(model.device.type, 4096)):
            ids, goals = (
                pad_sequence([torch.tensor(each[row]) for row in rows], batch_first=True, padding_value=model.pad)
                for each in (texts, targets)
            )
            ids, goals = ids.to(model.device), goals.to(model.device)
            total += float(loss(*model.embedding.output(model.decode(ids)), goals)[1])
    ends, tokens, words = len(documents), sum(len(each[0]) for each in documents), sum(each[1] for each in documents)
    found = {
        "perplexity_per_token": math.exp(min(total / (tokens + ends), 700)),
        "perplexity_per_word": math.exp(min(total / (words + ends), 700)),
    }
    return {**found, "nll": total, "documents": ends, "words": words, "tokens": tokens}


def prepared_documents(data: PreparedText, split: Split, tokenizer: MacaronTokenizer) -> Iterator[Document]:
    """The documents of a prepared folder; words are those of its pipeline."""
    if of_ids(tokenizer.fingerprint()) != of_ids(data.tokenizer_fingerprint):
        raise MacaronError(f"{data.folder} was prepared with another tokenizer than the model's: give --source FILE")
    sentences, edges = data.sentences(split), data.documents(split).tolist()
    state: State = "moses" if tokenizer.pipeline == "moses" else "raw"
    for begin, end in itertools.pairwise(edges):
        parts = [sentences[index].tolist() for index in range(begin, end)]
        words = sum(len(text.split()) for text in tokenizer.decode_lines(parts, state=state))
        yield [token for part in parts for token in part], words


def text_documents(path: Path, tokenizer: MacaronTokenizer, headings: bool) -> Iterator[Document]:
    """The documents of a file; words are those of the file."""
    split = splitter("raw", tokenizer.source_lang or "en")

    def document(lines: Sequence[str]) -> Document:
        # As macaron prepare does it: sentence by sentence. The tokenizer of a converted model takes text as it is.
        parts = [part for line in lines for part in split(" ".join(line.split()))]
        whole = ["\n".join(lines)] if tokenizer.pipeline == "plain" else parts
        ids = tokenizer.encode_lines(whole, add_special_tokens=False)
        return [token for each in ids for token in each], sum(len(line.split()) for line in lines)

    lines: list[str] = []
    for line in read_lines(path):
        begins = HEADING.fullmatch(line) is not None if headings else not line.strip()
        if begins and lines:
            yield document(lines)
            lines = []
        if line.strip():
            lines.append(line)
    if lines:
        yield document(lines)
