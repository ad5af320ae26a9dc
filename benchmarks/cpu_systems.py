"""The systems that `cpu_decoding.py` measures: ours, CTranslate2 and transformers, each built for one process."""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[list[list[int]]], list[list[int]]]

END = 2
FIRST_WORD = 4


def sentences(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    """Random sources of so many tokens, the end included."""
    generator = random.Random(1)
    return [[*(generator.randrange(FIRST_WORD, vocabulary) for _ in range(tokens - 1)), END] for _ in range(count)]


def random_model(preset_name: str, vocabulary: int) -> Any:
    """A model with random weights, large enough that the next token matters."""
    import torch

    from macaron.models import TranslationModel, preset

    torch.manual_seed(1)
    return TranslationModel(preset(preset_name, vocab_size=vocabulary)).eval()


def ours(options: argparse.Namespace, kind: str) -> Run:
    import torch

    from macaron.decode import SearchSettings, translate_ids
    from macaron.decode.cpu.model import CpuTranslationModel

    torch.set_num_threads(options.threads)
    model = random_model(options.preset, options.vocabulary)
    # The end is one of the tokens: the search takes one step more than max_length.
    settings = SearchSettings(beam=options.beam, min_length=options.tokens - 1, max_length=options.tokens - 1)
    if "plain" not in kind:
        model = CpuTranslationModel(model, int8="int8" in kind)
    return lambda sources: [list(best[0].tokens) for best in translate_ids(model, sources, settings, nbest=1)]


def ctranslate2(options: argparse.Namespace, kind: str) -> Run:
    import ctranslate2
    import torch

    from macaron.convert.to_ctranslate2 import write_ctranslate2

    torch.set_num_threads(options.threads)
    model = random_model(options.preset.replace("macaron", "transformer"), options.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(model, [str(token) for token in range(options.vocabulary)], Path(folder))
        translator = ctranslate2.Translator(
            folder, "cpu", compute_type=kind, inter_threads=1, intra_threads=options.threads
        )

    def run(sources: list[list[int]]) -> list[list[int]]:
        results = translator.translate_batch(
            [[str(token) for token in source] for source in sources],
            beam_size=options.beam,
            min_decoding_length=options.tokens,
            max_decoding_length=options.tokens,
            max_batch_size=0,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    agree(model, translator, options)
    return run


def agree(model: Any, translator: Any, options: argparse.Namespace) -> None:
    """Compare CTranslate2's scores with ours on the same weights; both search with so many beams and steps."""
    from macaron.decode import SearchSettings, translate_ids

    sources = sentences(4, options.tokens, options.vocabulary)
    # CTranslate2 stops after so many tokens, ours writes the end after them.
    settings = SearchSettings(
        beam=options.beam, min_length=options.tokens, max_length=options.tokens, length_penalty=0.0
    )
    theirs = translator.translate_batch(
        [[str(token) for token in source] for source in sources],
        beam_size=options.beam,
        num_hypotheses=options.beam,
        min_decoding_length=options.tokens,
        max_decoding_length=options.tokens,
        length_penalty=0.0,
        return_scores=True,
    )
    gaps, same = [], 0
    for best, result in zip(translate_ids(model, sources, settings), theirs, strict=True):
        if {len(each) for each in result.hypotheses} != {options.tokens} or len(result.hypotheses) != options.beam:
            sys.exit(f"CTranslate2 did not search as asked: {[len(each) for each in result.hypotheses]} tokens")
        found = {each.tokens[:-1]: sum(each.token_scores[:-1]) for each in best}
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            key = tuple(int(token) for token in tokens)
            if key in found:
                same += 1
                gaps.append(abs(found[key] - score))
    say({"agree": f"{same} of {options.beam * len(sources)} hypotheses, scores differ by {max(gaps, default=0.0):.2g}"})


def transformers(options: argparse.Namespace, kind: str) -> Run:
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    own = random_model(options.preset.replace("macaron", "transformer"), 8).config
    config = MarianConfig(
        vocab_size=options.vocabulary,
        d_model=own.hidden_size,
        encoder_layers=own.encoder_layers,
        decoder_layers=own.decoder_layers,
        encoder_attention_heads=own.num_attention_heads,
        decoder_attention_heads=own.num_attention_heads,
        encoder_ffn_dim=own.intermediate_size,
        decoder_ffn_dim=own.intermediate_size,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=1,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=END,
    )
    model = MarianMTModel(config).eval()
    length = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    def run(sources: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(sources)
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=options.beam, early_stopping=True, **length
        )
        return made[:, 1:].tolist()

    return run


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)
