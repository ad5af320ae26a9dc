"""Converts foreign checkpoints to model folders."""

from macaron.convert.fairseq import convert_fairseq
from macaron.convert.huggingface import convert_huggingface

__all__ = ["convert_fairseq", "convert_huggingface"]
