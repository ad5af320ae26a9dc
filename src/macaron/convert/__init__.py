"""Converts foreign checkpoints to model folders."""

from macaron.convert.fairseq import Conversion, convert_fairseq

__all__ = ["Conversion", "convert_fairseq"]
