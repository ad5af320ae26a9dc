"""Converts model folders of transformers to ours: the same outputs, in the networks of this toolkit.

The tokens are numbered anew, since ours begin with the special tokens. Tokens that a foreign vocabulary lacks get a row
of zeros and a bias that makes them impossible.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from macaron.convert.bert import bert
from macaron.convert.fairseq import Conversion, check_replaceable, description
from macaron.convert.foreign import NEVER, Converted, ForeignFolder, reordered
from macaron.convert.marian import marian
from macaron.convert.renumbered import renumbered, stored_tokenizer
from macaron.errors import MacaronError, naming
from macaron.models.configuration import LanguageConfig
from macaron.models.language import LanguageModel
from macaron.models.load import save_model
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import EOS, PAD, specials


def gpt2(source: ForeignFolder) -> Converted:
    """GPT2LMHeadModel: pre-norm, learned positions, no embedding scale."""
    source.architecture("GPT2LMHeadModel", "GPT2Model")
    source.only("scale_attn_weights", True)
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        source.only(key, False)
    source.only("tie_word_embeddings", True)
    start = "transformer." if any(name.startswith("transformer.") for name in source.tensors) else ""
    table = source.weight(f"{start}wte.weight")
    rows, hidden = len(table), source.number("n_embd")
    places: list[int | None] = [None] * len(specials("language"))
    places[EOS] = source.token("eos_token_id", rows, rows - 1)
    pad = source.token("pad_token_id", rows)
    places[PAD] = None if pad == places[EOS] else pad
    backend, order = renumbered(source, stored_tokenizer(source), places, "language", rows)
    tokenizer = MacaronTokenizer(backend, kind="language", pipeline="plain")
    layers = source.number("n_layer")
    config = LanguageConfig(
        vocab_size=len(order),
        hidden_size=hidden,
        num_attention_heads=source.number("n_head"),
        intermediate_size=source.number("n_inner", 4 * hidden),
        num_hidden_layers=layers,
        scheme="lie-fg",
        activation=source.activation("activation_function"),
        dropout=source.number("resid_pdrop", 0.1),
        attention_dropout=source.number("attn_pdrop", 0.1),
        layer_norm_eps=source.number("layer_norm_epsilon", 1e-5),
        max_position_embeddings=source.number("n_positions", 1024),
        scale_embedding=False,
        output_bias=True,
        tokenizer_fingerprint=tokenizer.fingerprint(),
    )
    weights = {
        "embedding.tokens.weight": reordered(table, order),
        "embedding.positions.weight": source.weight(f"{start}wpe.weight"),
        "embedding.output_bias": reordered(torch.zeros(rows), order, NEVER),
        **source.renamed(start, {"norm": "ln_f"}, "decoder."),
    }
    modules = {
        **{"F1.norm": "ln_1", "F1.operator.qkv": "attn.c_attn", "F1.operator.out": "attn.c_proj"},
        **{"G1.norm": "ln_2", "G1.operator.fc1": "mlp.c_fc", "G1.operator.fc2": "mlp.c_proj"},
    }
    for layer in range(layers):
        found = source.renamed(f"{start}h.{layer}.", modules, f"decoder.layers.{layer}.sublayers.")
        # Its linear maps are stored as convolutions of width 1: inputs by outputs.
        weights |= {name: each.T if each.dim() == 2 else each for name, each in found.items()}
    model = source.build(LanguageModel, config, weights, r".*\.attn\.(masked_)?bias|lm_head\.weight")
    return Converted(model, tokenizer, "language model")


#: By model_type in config.json.
_FAMILIES: dict[str, Callable[..., Converted]] = {"gpt2": gpt2, "bert": bert, "marian": marian}


def convert_huggingface(folder: str | Path, out: str | Path, *, force: bool = False, **settings: Any) -> Conversion:
    """Convert a folder that ``save_pretrained`` of transformers wrote.

    :param force: replace an existing model folder
    :param settings: ``source_lang`` and ``target_lang`` of a translation model, by default those it names
    """
    folder, out = Path(folder), Path(out)
    check_replaceable(out, force)
    source = ForeignFolder.read(folder)
    given = {name: value for name, value in settings.items() if value}
    with naming(folder):
        family = source.only("model_type", *_FAMILIES)
        if given and family != "marian":
            raise MacaronError(f"{next(iter(given))} is for translation models: leave it out")
        made = _FAMILIES[family](source, **given)
    check_replaceable(out, force)  # again: the conversion may have taken long
    save_model(out, made.model, made.model.state_dict(), made.tokenizer)
    return Conversion(description(made.title, made.model, out), ())
