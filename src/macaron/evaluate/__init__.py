"""Scores of translations, always with their definitions, confidence intervals and tests of significance."""

from macaron.evaluate.scores import Score as Score
from macaron.evaluate.scores import SentenceStatistics as SentenceStatistics
from macaron.evaluate.scores import chrf as chrf
from macaron.evaluate.scores import paper_bleu as paper_bleu
from macaron.evaluate.scores import sacre_bleu as sacre_bleu
from macaron.evaluate.scores import tokenised_bleu as tokenised_bleu
from macaron.evaluate.significance import Comparison as Comparison
from macaron.evaluate.significance import Interval as Interval
from macaron.evaluate.significance import approximate_randomisation as approximate_randomisation
from macaron.evaluate.significance import bootstrap_interval as bootstrap_interval
from macaron.evaluate.significance import paired_bootstrap as paired_bootstrap
