"""Folders of ``macaron quantise`` in transformers: a quantiser that restores the matrices when they are loaded."""

from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from macaron.errors import MacaronError
from macaron.models.load import INT8, SCALES

METHOD = INT8["quant_method"]


@register_quantization_config(METHOD)
class RowsConfig(QuantizationConfigMixin):
    """What config.json says of such a folder. A loaded model no longer has it, and is saved as any other."""

    def __init__(self, quant_method: str = METHOD, dequantize: bool = True) -> None:
        self.quant_method, self.dequantize = quant_method, dequantize


@register_quantizer(METHOD)
class RowsQuantizer(HfQuantizer):
    """Turns int8 matrices and the scales of their rows into matrices of the model's precision."""

    is_trainable = True

    def is_serializable(self) -> bool:
        """Never asked: the loaded model is not quantised."""
        return False

    def get_weight_conversions(self) -> list[Any]:
        """How weights of the file become those of the model."""
        return [WeightConverter(["weight$", f"weight{SCALES}"], "weight", [RestoreRows(self)])]

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        model._weight_conversions = None  # or it would be saved as it was read
        return model


class RestoreRows(ConversionOps):
    """An int8 matrix times its scales; weights without scales, such as those of norms, stay."""

    def __init__(self, quantizer: HfQuantizer) -> None:
        self.hf_quantizer = quantizer  # transformers then leaves the precision of what it reads to us

    def convert(self, input_dict: dict[str, Any], full_layer_name: str = "", model: Any = None, **_: Any) -> Any:
        """The weight under its name in the model."""
        weight, scales = (_one(input_dict.get(name)) for name in ("weight$", f"weight{SCALES}"))
        if weight is None or (weight.dtype == torch.int8) != (scales is not None):
            raise MacaronError(f"{full_layer_name}: an int8 matrix or its scales are missing. Copy the folder again.")
        restored = weight if scales is None else weight * scales[:, None]
        return {full_layer_name: restored.to(model.dtype)}


def _one(found: Any) -> Tensor | None:
    return found[0] if isinstance(found, list) else found
