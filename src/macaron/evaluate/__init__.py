"""Scores of translations, always with their definitions, confidence intervals and tests of significance."""

from macaron.evaluate.scores import (
    chrf,
    paper_bleu,
    sacre_bleu,
    tokenised_bleu,
)
from macaron.evaluate.significance import (
    Comparison,
    Interval,
    approximate_randomisation,
    bootstrap_interval,
    paired_bootstrap,
)
from macaron.evaluate.statistics import Score, SentenceStatistics

__all__ = [
    "Comparison",
    "Interval",
    "Score",
    "SentenceStatistics",
    "approximate_randomisation",
    "bootstrap_interval",
    "chrf",
    "paired_bootstrap",
    "paper_bleu",
    "sacre_bleu",
    "tokenised_bleu",
]
