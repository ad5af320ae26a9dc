"""Converts foreign checkpoints to model folders."""

from macaron.convert.fairseq import convert_fairseq

__all__ = ["convert_fairseq"]
