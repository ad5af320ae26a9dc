"""What a model is made of: layers, widths, parameters, counted on the model itself."""

from typing import Any

import torch

from macaron.models.configuration import TranslationConfig
from macaron.models.encoder import EncoderForPreTraining
from macaron.models.network import Network
from macaron.models.presets import AnyConfig, preset, preset_names, twin
from macaron.models.translation import LanguageModel, TranslationModel
from macaron.nn.layer import layer_widths

#: One line of ``macaron models``: name, kind and scheme; layers, widths and heads; parameters, with and without the
#: embedding; the twin, and the difference of their sizes relative to it (None without one). It is what --json prints.
Summary = dict[str, Any]


#: The network of each configuration; an encoder's has both pre-training heads.
NETWORKS: dict[type[AnyConfig], type[Network]] = {
    each.config_class: each for each in (TranslationModel, EncoderForPreTraining, LanguageModel)
}


def count(config: AnyConfig) -> int:
    """Number of parameters; nothing is allocated."""
    with torch.device("meta"):
        return NETWORKS[type(config)](config).num_parameters()


def summarise(name: str, config: Any) -> Summary:
    """Measure a configuration."""
    scheme = config.encoder_scheme_value()
    widths, both = layer_widths(scheme, config), isinstance(config, TranslationConfig)
    parameters = count(config)
    return {
        "name": name,
        "kind": config.kind,
        "scheme": scheme.name,
        "layers": f"{config.encoder_layers}+{config.decoder_layers}" if both else str(config.num_hidden_layers),
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "inner_widths": widths.get("G", widths.get("B", ())),
        "head_widths": widths.get("F", ()),
        "norm": config.norm,
        "vocab_size": config.vocab_size,
        "parameters": parameters,
        "without_embedding": parameters - config.vocab_size * config.hidden_size,
    }


def all_presets(vocab_size: int | None = None) -> list[Summary]:
    """Every preset, with the difference between twins.

    :param vocab_size: for all of them; by default each has its own
    """
    changes = {} if vocab_size is None else {"vocab_size": vocab_size}
    found = {name: summarise(name, preset(name, **changes)) for name in preset_names()}
    for name, summary in found.items():
        other = twin(name)
        difference = None if other is None else summary["parameters"] / found[other]["parameters"] - 1
        summary |= {"twin": other, "difference": difference}
    return list(found.values())
