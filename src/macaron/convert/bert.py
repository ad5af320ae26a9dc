"""BERT of transformers, converted: with its masked-word head, as a classifier, or alone."""

import re
from typing import Any

from macaron.convert.foreign import NEVER, Converted, ForeignFolder, reordered
from macaron.convert.renumbered import entries, renumbered, stored_tokenizer, tokenizer_settings
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.models.encoder import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from macaron.text.tokenizer import MacaronTokenizer

#: Our special tokens after <s>, which BERT lacks, as tokenizer_config.json calls them; and their usual names.
_SPECIAL = (("pad", "[PAD]"), ("sep", "[SEP]"), ("unk", "[UNK]"), ("mask", "[MASK]"), ("cls", "[CLS]"))
_ARCHITECTURES = ("BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "BertModel")
#: Weights that are copies, or parts that only next-sentence prediction has.
_IGNORED = r"(bert\.)?(pooler\..*|embeddings\.position_ids)|cls\.(seq_relationship|predictions\.decoder)\..*"


def bert(source: ForeignFolder) -> Converted:
    """BertForMaskedLM, BertForSequenceClassification or BertModel: post-norm, learned positions, a norm after them."""
    source.architecture(*_ARCHITECTURES)
    source.only("hidden_act", "gelu")
    source.only("position_embedding_type", "absolute")
    source.only("type_vocab_size", 2)
    source.only("is_decoder", False)
    source.only("tie_word_embeddings", True)
    # The oldest checkpoints call the weights of norms gamma and beta.
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    pattern = re.compile("|".join(map(re.escape, old)))
    source.tensors = {pattern.sub(lambda found: old[found[0]], name): each for name, each in source.tensors.items()}
    start = "bert." if any(name.startswith("bert.") for name in source.tensors) else ""
    classifies, predicts = "classifier.weight" in source.tensors, "cls.predictions.bias" in source.tensors
    table = source.weight(f"{start}embeddings.word_embeddings.weight")
    content, named = stored_tokenizer(source), tokenizer_settings(source)
    ids = {token: index for index, token in entries(source, content).items()}
    places: list[int | None] = [None]
    for name, usual in _SPECIAL:
        given = named.get(f"{name}_token") or usual
        token = given.get("content") if isinstance(given, dict) else given
        if token not in ids:
            raise MacaronError(f"the vocabulary lacks {token!r}, the {name} token of tokenizer_config.json")
        places.append(ids[token])
    backend, order = renumbered(source, content, places, "encoder", len(table))
    tokenizer = MacaronTokenizer.from_backend(backend, kind="encoder", pipeline="plain")
    layers = source.number("num_hidden_layers")
    config = EncoderConfig(
        vocab_size=len(order),
        hidden_size=source.number("hidden_size"),
        num_attention_heads=source.number("num_attention_heads"),
        intermediate_size=source.number("intermediate_size"),
        num_hidden_layers=layers,
        scheme="lie-fg",
        norm="post",
        dropout=source.number("hidden_dropout_prob", 0.1),
        attention_dropout=source.number("attention_probs_dropout_prob", 0.1),
        layer_norm_eps=source.number("layer_norm_eps", 1e-12),
        max_position_embeddings=source.number("max_position_embeddings", 512),
        position_vectors="learned",
        scale_embedding=False,
        embedding_norm=True,
        output_bias=predicts and not classifies,
        pooler=classifies,
        tokenizer_fingerprint=tokenizer.fingerprint(),
        **(_labels(source) if classifies else {}),
    )
    inner = "model." if classifies or predicts else ""
    weights = {
        f"{inner}embedding.tokens.weight": reordered(table, order),
        f"{inner}embedding.positions.weight": source.weight(f"{start}embeddings.position_embeddings.weight"),
        f"{inner}embedding.segments.weight": source.weight(f"{start}embeddings.token_type_embeddings.weight"),
        **source.renamed(f"{start}embeddings.", {"norm": "LayerNorm"}, f"{inner}embedding."),
    }
    modules = {
        "F1.operator.qkv": "attention.self.query attention.self.key attention.self.value",
        "F1.operator.out": "attention.output.dense",
        "F1.norm": "attention.output.LayerNorm",
        "G1.operator.fc1": "intermediate.dense",
        "G1.operator.fc2": "output.dense",
        "G1.norm": "output.LayerNorm",
    }
    for layer in range(layers):
        place = f"{inner}encoder.layers.{layer}.sublayers."
        weights |= source.renamed(f"{start}encoder.layer.{layer}.", modules, place)
    network: Any = EncoderModel
    if classifies:
        network, title = EncoderForSequenceClassification, f"classifier of {config.num_labels} classes"
        weights |= source.renamed("", {"pooler": f"{start}pooler.dense", "classifier": "classifier"}, "")
    elif predicts:
        network, title = EncoderForMaskedLM, "encoder with a masked-word head"
        head = {"dense": "dense", "norm": "LayerNorm"}
        weights |= source.renamed("cls.predictions.transform.", head, "head.")
        bias = source.weight("cls.predictions.bias")
        weights["model.embedding.output_bias"] = reordered(bias, order, NEVER)
    else:
        title = "encoder"
    return Converted(source.build(network, config, weights, _IGNORED), tokenizer, title)


def _labels(source: ForeignFolder) -> dict[str, Any]:
    """The fields of a classifier."""
    problem = source.only("problem_type", None, "single_label_classification", "regression")
    count = len(source.tensors["classifier.weight"])
    names = source.config.get("id2label") or {index: f"LABEL_{index}" for index in range(count)}
    if not isinstance(names, dict) or len(names) != count:
        raise MacaronError(f"id2label in config.json must have {count} names, as many as the classifier has outputs")
    usual = "single_label_classification" if count > 1 else "regression"
    return {"id2label": names, "problem_type": problem or usual}
