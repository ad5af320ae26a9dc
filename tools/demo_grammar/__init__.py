"""A German-English corpus from a grammar: gender, case, agreement, verb-second and verb-final order, and the rest.

A meaning (`meaning`) is sampled (`sentences`) and realised in German (`german`) and in English (`english`). The
German sentence determines the English one, so a perfect translation exists and order and agreement must be learned.
"""

from demo_grammar.baseline import WordByWord, learn_dictionary
from demo_grammar.corpus import DemoCorpus, demo_corpus, generate

__all__ = ["DemoCorpus", "WordByWord", "demo_corpus", "generate", "learn_dictionary"]
