"""Masked words: what a pre-trained encoder reads where a text has ``<mask>``."""

from collections.abc import Sequence
from pathlib import Path

import torch

from macaron.device import choose_device
from macaron.errors import MacaronError, not_finite, require
from macaron.json_files import Record
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.load import ENCODER_HEADS, find_folder, load_model
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.vocabulary import MASK


class MaskFiller:
    """A pre-trained encoder with its head for masked words.

    >>> MaskFiller("runs/bert").fill(["A cat <mask> on the mat."])[0][0]["token_str"]  # doctest: +SKIP
    'sat'

    :param path: a folder of a pre-trained encoder, or a run's
    :param device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``
    """

    def __init__(self, path: str | Path, device: str = "auto") -> None:
        self.folder = find_folder(path, "encoder")
        model, missing = load_model(self.folder, EncoderForMaskedLM, torch.float32, ENCODER_HEADS)
        require(not missing, f"{self.folder}: the model has no head for masked words; it was fine-tuned, or exported")
        self.tokenizer = model_tokenizer(self.folder, "encoder", model.config)
        self.model = model.to(choose_device(device))

    def fill(self, texts: Sequence[str], top_k: int = 5, targets: Sequence[str] = ()) -> list[list[Record]]:
        """The most probable tokens for the mask of each text, best first, as transformers' pipeline gives them.

        :param texts: each with one ``<mask>``
        :param targets: words to choose among; by default all. The first token of a word counts.
        """
        choices = self.tokenizer.encode_lines(list(targets), add_special_tokens=False)
        among = sorted({ids[0] for ids in choices if ids})
        if targets and not among:
            raise MacaronError("the targets have no token that the model knows")
        return [self._fill(text, top_k, among) for text in texts]

    def _fill(self, text: str, top_k: int, among: Sequence[int]) -> list[Record]:
        [ids] = self.tokenizer.encode_lines([text], recognise_specials=True)
        mask, longest = self.tokenizer.special_names[MASK], self.model.config.longest_input
        require(ids.count(MASK) == 1, f"a text must have one {mask}, this one has {ids.count(MASK)}")
        require(len(ids) <= longest, f"the text has {len(ids)} tokens, the model takes {longest}: shorten it")
        place, device = ids.index(MASK), self.model.embedding.tokens.weight.device
        with torch.inference_mode():
            states = self.model.model(torch.tensor([ids], device=device))
            shares = self.model.mlm_logits(states[0, place]).float().softmax(dim=-1)[: len(self.tokenizer)].cpu()
        if not bool(torch.isfinite(shares).all()):
            raise not_finite(self.folder)
        allowed = torch.tensor(among) if among else torch.arange(len(shares))
        best = allowed[shares[allowed].topk(min(top_k, len(allowed))).indices].tolist()
        words = self.tokenizer.decode_lines([[token] for token in best])
        whole = self.tokenizer.decode_lines([[*ids[:place], token, *ids[place + 1 :]] for token in best])
        return [
            {"score": float(shares[token]), "token": token, "token_str": word, "sequence": sequence}
            for token, word, sequence in zip(best, words, whole, strict=True)
        ]
