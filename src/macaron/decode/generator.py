"""The Generator: prompts in, continuations out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from macaron.decode.beam import Chains
from macaron.decode.cpu.model import CpuLanguageModel
from macaron.decode.forced import load_folder
from macaron.decode.search import batches, end_token
from macaron.decode.settings import Hypothesis, Sampling, SearchSettings
from macaron.errors import MacaronError
from macaron.models.translation import LanguageModel
from macaron.nn.attention import KeyValueCache
from macaron.text.vocabulary import EOS

#: Tokens of a continuation, and of the prompts of a batch, where nothing else is said.
MAX_LENGTH, BATCH_TOKENS = 100, 4096
#: Drawing among the one best token.
GREEDY = Sampling(top_k=1)


class Generator:
    """A language model with its tokenizer; on a CPU with packed matrices (`macaron.decode.cpu`).

    :param int8: on the CPU, round the matrices to 8 bits: faster, and nearly as good

    >>> Generator("runs/gpt").generate(["Once upon a time"])  # doctest: +SKIP
    [' there was a king.']
    """

    def __init__(self, path: str | Path, *, device: str = "auto", dtype: str | None = None, int8: bool = False) -> None:
        where = "cpu" if int8 and device == "auto" else device
        model, self.tokenizer = load_folder(path, where, dtype, LanguageModel)
        packed = int8 or (model.device.type == "cpu" and model.embedding.tokens.weight.dtype == torch.float32)
        self.model = CpuLanguageModel(model, int8) if packed else model

    def generate(self, prompts: Iterable[str], **options: int | Sampling | None) -> list[str]:
        """A continuation of each prompt, as it follows the prompt; the options are those of `generate_nbest`."""
        return [found[0].text for found in self.generate_nbest(prompts, **options)]  # type: ignore[arg-type]

    def generate_nbest(
        self,
        prompts: Iterable[str],
        *,
        nbest: int = 1,
        max_length: int | None = None,
        sampling: Sampling | None = None,
        first_line: int = 1,
    ) -> list[list[Hypothesis]]:
        """Several continuations of each prompt, with the sums of their tokens' log-probabilities.

        :param nbest: samples of a prompt, the likeliest first
        :param max_length: tokens of a continuation; by default 100, or what the model has room for
        :param sampling: draw tokens; by default each is the best one. The samples of a line depend on the seed and
            its number alone
        """
        if nbest > 1 and sampling is None:
            raise MacaronError("several continuations have to be drawn: give sampling=Sampling(...)")
        ids = [each or [EOS] for each in self.tokenizer.encode_lines(list(prompts))]
        longest = self.model.config.max_position_embeddings
        for number, prompt in enumerate(ids, start=first_line):
            if len(prompt) + (max_length or 1) > longest:
                raise MacaronError(
                    f"line {number}: a prompt of {len(prompt)} tokens and {max_length or 1} more exceed the {longest} "
                    "that the model can take: shorten the prompt, or lower the longest continuation (--max-length)"
                )
        found: list[list[Hypothesis]] = [[] for _ in ids]
        for rows in batches([len(each) for each in ids], BATCH_TOKENS, nbest):
            chosen = [ids[row] for row in rows]
            limits = [max_length or min(MAX_LENGTH, longest - len(each)) for each in chosen]
            keys = [(first_line + row,) for row in rows]
            settings = SearchSettings(beam=nbest, length_penalty=0.0, max_length=max(limits), min_length=0)
            with torch.inference_mode():
                results = _draw(self.model, chosen, limits, replace(settings, sampling=sampling or GREEDY), keys)
            for row, best in zip(rows, results, strict=True):
                found[row] = [replace(each, text=self._text(ids[row], each.tokens)) for each in best]
        return found

    def _text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """What new tokens add to the text of a prompt, their space in front included."""
        before, whole = self.tokenizer.decode_lines([prompt, [*prompt, *tokens]], side="source")
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode_lines([tokens], "source")[0]


def _draw(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    settings: SearchSettings,
    keys: Sequence[Sequence[int]],
) -> list[list[Hypothesis]]:
    """Continue a batch of prompts, padded on the left; the samples of a prompt are rows of the batch."""
    device, chains, width = model.device, settings.beam, max(map(len, prompts))
    assert settings.sampling is not None
    tensors = [torch.tensor(each, device=device) for each in prompts]
    rows = pad_sequence(tensors, batch_first=True, padding_value=model.pad, padding_side="left")
    starts = torch.tensor([width - len(each) for each in prompts], device=device)
    real = torch.arange(width, device=device) >= starts[:, None]
    ends = torch.tensor(limits, device=device)
    state = Chains(settings, ends, model.pad, end_token(model), settings.sampling, keys)
    cache = KeyValueCache()
    states = model.decode(rows, cache=cache, target_real=real)[:, -1:]
    cache.select(torch.arange(len(rows), device=device).repeat_interleave(chains))
    real = real.repeat_interleave(chains, 0)
    for step in range(max(limits) + 1):
        scores = model.logits(states).log_softmax(-1, dtype=torch.promote_types(states.dtype, torch.float32))
        tokens, parents = state.advance(scores.view(len(rows), -1, scores.shape[-1]), step, step in limits)
        state.remember(tokens, parents)
        if bool(state.closed.all()):
            break
        real = torch.cat([real, torch.ones_like(real[:, :1])], 1)
        states = model.decode(tokens.reshape(-1, 1), cache=cache, target_real=real)
    return state.results(torch.arange(len(rows), device=device), chains)
