"""Converts foreign checkpoints to model folders."""

from macaron.convert.fairseq import Conversion, convert_fairseq
from macaron.convert.huggingface import convert_huggingface

__all__ = ["Conversion", "convert_fairseq", "convert_huggingface"]
