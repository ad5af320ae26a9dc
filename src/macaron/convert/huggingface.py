"""Converts model folders of transformers to ours: the same outputs, in the networks of this toolkit.

The tokens are numbered anew, since ours begin with the special tokens. Tokens that a foreign vocabulary lacks get a row
of zeros and a bias that makes them impossible.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from macaron.convert.fairseq import check_replaceable, description
from macaron.convert.foreign import (
    NEVER,
    ForeignFolder,
    entries,
    renumbered,
    reordered,
    stored_tokenizer,
    tokenizer_settings,
)
from macaron.convert.marian import marian
from macaron.errors import MacaronError, naming
from macaron.models.configuration import EncoderConfig, LanguageConfig
from macaron.models.encoder import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from macaron.models.load import save_model
from macaron.models.network import Network
from macaron.models.translation import LanguageModel
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import EOS, PAD, specials

#: Our special tokens after <s>, which BERT lacks, as tokenizer_config.json calls them; and their usual names.
_SPECIAL = (("pad", "[PAD]"), ("sep", "[SEP]"), ("unk", "[UNK]"), ("mask", "[MASK]"), ("cls", "[CLS]"))
#: The oldest checkpoints call the weights of norms so.
_OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def gpt2(source: ForeignFolder) -> tuple[Network, MacaronTokenizer, str]:
    """GPT2LMHeadModel: the model, its tokenizer, and what it is called."""
    table = source.weight(source.prefix + source.family["table"])
    rows = len(table)
    source.config["n_inner"] = source.config.get("n_inner") or 4 * source.number("n_embd")
    places: list[int | None] = [None] * len(specials("language"))
    places[EOS] = source.token("eos_token_id", rows, rows - 1)
    pad = source.token("pad_token_id", rows)
    places[PAD] = None if pad == places[EOS] else pad
    backend, order = renumbered(stored_tokenizer(source), places, "language", rows)
    tokenizer = MacaronTokenizer(backend, kind="language", pipeline="plain")
    fingerprint = tokenizer.fingerprint()
    config = LanguageConfig(vocab_size=len(order), tokenizer_fingerprint=fingerprint, **source.fields())
    weights = {
        # Its linear maps are stored as convolutions of width 1: inputs by outputs.
        name: each.T if ".operator." in name and each.dim() == 2 else each
        for name, each in source.all_weights(config).items()
    }
    weights["embedding.tokens.weight"] = reordered(table, order)
    weights["embedding.output_bias"] = reordered(torch.zeros(rows), order, NEVER)
    return source.build(LanguageModel, config, weights), tokenizer, "language model"


def bert(source: ForeignFolder) -> tuple[Network, MacaronTokenizer, str]:
    """BertForMaskedLM, BertForSequenceClassification or BertModel."""
    pattern = re.compile("|".join(map(re.escape, _OLD_NORMS)))
    source.tensors = {pattern.sub(lambda old: _OLD_NORMS[old[0]], name): each for name, each in source.tensors.items()}
    table = source.weight(source.prefix + source.family["table"])
    content, named = stored_tokenizer(source), tokenizer_settings(source)
    ids = {token: index for index, token in entries(content).items()}
    places: list[int | None] = [None]
    for name, usual in _SPECIAL:
        given = named.get(f"{name}_token") or usual
        token = given.get("content") if isinstance(given, dict) else given
        if token not in ids:
            raise MacaronError(f"the vocabulary lacks {token!r}, the {name} token of tokenizer_config.json")
        places.append(ids[token])
    backend, order = renumbered(content, places, "encoder", len(table))
    tokenizer = MacaronTokenizer.from_backend(backend, kind="encoder", pipeline="plain")
    classifies, predicts = "classifier.weight" in source.tensors, "cls.predictions.bias" in source.tensors
    config = EncoderConfig(
        vocab_size=len(order),
        output_bias=predicts and not classifies,
        pooler=classifies,
        tokenizer_fingerprint=tokenizer.fingerprint(),
        **source.fields(),
        **(_labels(source) if classifies else {}),
    )
    weights = {"embedding.tokens.weight": reordered(table, order), **source.all_weights(config)}
    if not classifies and not predicts:
        return source.build(EncoderModel, config, weights), tokenizer, "encoder"
    weights = {f"model.{name}": each for name, each in weights.items()}
    if classifies:
        weights |= source.renamed("", {"pooler": f"{source.prefix}pooler.dense", "classifier": "classifier"}, "")
        model = source.build(EncoderForSequenceClassification, config, weights)
        return model, tokenizer, f"classifier of {config.num_labels} classes"
    weights |= source.renamed("cls.predictions.transform.", {"dense": "dense", "norm": "LayerNorm"}, "head.")
    weights["model.embedding.output_bias"] = reordered(source.weight("cls.predictions.bias"), order, NEVER)
    return source.build(EncoderForMaskedLM, config, weights), tokenizer, "encoder with a masked-word head"


def _labels(source: ForeignFolder) -> dict[str, Any]:
    problem = source.only("problem_type", None, "single_label_classification", "regression")
    count = len(source.tensors["classifier.weight"])
    names = source.config.get("id2label") or {index: f"LABEL_{index}" for index in range(count)}
    if not isinstance(names, dict) or len(names) != count:
        raise MacaronError(f"id2label in config.json must have {count} names, as many as the classifier has outputs")
    usual = "single_label_classification" if count > 1 else "regression"
    return {"id2label": names, "problem_type": problem or usual}


_FAMILIES: dict[str, Callable[..., Any]] = {"gpt2": gpt2, "bert": bert, "marian": marian}


def convert_huggingface(folder: str | Path, out: str | Path, *, force: bool = False, **settings: Any) -> list[str]:
    """Convert a folder that ``save_pretrained`` of transformers wrote.

    :param settings: ``source_lang`` and ``target_lang`` of a translation model, by default those it names
    :returns: a description in lines
    """
    folder, out = Path(folder), Path(out)
    check_replaceable(out, force)
    given = {name: value for name, value in settings.items() if value}
    with naming(folder):
        source = ForeignFolder.read(folder)
        family = source.config["model_type"]
        if given and family != "marian":
            raise MacaronError(f"{next(iter(given))} is for translation models: leave it out")
        model, tokenizer, title = _FAMILIES[family](source, **given)
    check_replaceable(out, force)  # again: the conversion may have taken long
    save_model(out, model, model.state_dict(), tokenizer)
    return description(title, model, out)
