"""Sentence embeddings: the mean of a text's token states, scaled to length 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from macaron.errors import not_finite
from macaron.models.load import save_model
from macaron.settings import load_toml
from macaron.tasks.classification import ClassificationBatch
from macaron.tasks.classifier import EncoderOnDevice, Precision
from macaron.text.vocabulary import TokenizerKind


class Embedder(EncoderOnDevice):
    """A text encoder that gives vectors.

    >>> Embedder("runs/bert").embed(["A cat sat on the mat."]).shape  # doctest: +SKIP
    (1, 768)

    The vector of a text is the mean of the states of all its tokens, special tokens included, divided by its length:
    the dot product of two is their cosine. The vectors are those of sentence-transformers for the same model.

    :param path: a folder of any of our encoders, or a run's
    :param device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``
    :param precision: ``auto`` is bfloat16 on a GPU, float32 elsewhere
    :param max_length: tokens of a text; longer ones are cut; default: the model's longest input
    """

    kinds: ClassVar[tuple[TokenizerKind, ...]] = ("encoder",)

    def __init__(
        self, path: str | Path, device: str = "auto", precision: Precision = "auto", max_length: int | None = None
    ) -> None:
        super().__init__(Path(path), device, precision, max_length, new_head=True)
        self.max_length = max_length or self.model.config.longest_input

    @property
    def size(self) -> int:
        """Numbers in a vector."""
        return int(self.model.config.hidden_size)

    def embed(self, texts: str | Sequence[str], normalize: bool = True) -> NDArray[np.float32]:
        """The vectors of texts, (N, D), or the vector of one text, (D,). They do not depend on each other.

        White space around a text does not count. An empty text has the vector of the special tokens alone.

        :param normalize: divide the mean of the states by its length
        """
        if isinstance(texts, str):
            return self.embed([texts], normalize)[0]
        data = self.encode([[text.strip() for text in texts]])

        def pooled(batch: ClassificationBatch) -> Tensor:
            states = self.model.model.encode(batch.tokens, batch.real, batch.segments).float()
            real = batch.real.unsqueeze(-1).float()
            with torch.autocast(states.device.type, enabled=False):
                mean = (states * real).sum(dim=1) / real.sum(dim=1)
                return F.normalize(mean, dim=1) if normalize else mean

        with self.memory_explained("texts"):
            vectors = self.over_batches(data, pooled, self.size).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise not_finite(self.folder)
        return vectors

    def export(self, folder: Path) -> None:
        """Write a folder for ``sentence_transformers.SentenceTransformer``: the encoder alone, pooling, normalising."""
        more = load_toml(Path(__file__).with_suffix(".toml"))[0]
        more["sentence_bert_config.json"]["max_seq_length"] = self.max_length
        version = {"pytorch": torch.__version__}
        more["config_sentence_transformers.json"] |= {"__version__": version, "default_prompt_name": None}
        more["1_Pooling/config.json"]["word_embedding_dimension"] = self.size
        save_model(folder, self.model.model, None, self.tokenizer, more=more)
