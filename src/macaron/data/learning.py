"""Learning the subword vocabulary of a prepared folder from words that have been counted."""

from pathlib import Path
from typing import TYPE_CHECKING

from macaron.data.encoding import WordCounts, repeated_words
from macaron.data.progress import Progress
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import Kind

if TYPE_CHECKING:
    from macaron.data.settings import PairsSettings, TextSettings


def learn_tokenizer(
    words: WordCounts,
    folder: Path,
    recipe: "PairsSettings | TextSettings",
    languages: tuple[str, str],
    kind: Kind,
    progress: Progress,
) -> MacaronTokenizer:
    """Learn the vocabulary that a recipe asks for, and save the tokenizer in ``FOLDER/tokenizer``."""
    with progress.step("learning subwords", "words") as step:
        step(len(words.counts))
        tokenizer = MacaronTokenizer.train(
            repeated_words(words.counts, recipe.pipeline == "raw"),
            recipe.vocab_size,
            pipeline=recipe.pipeline,
            kind=kind,
            source_lang=languages[0],
            target_lang=languages[1],
            lower=recipe.lower,
            normalize=recipe.normalize,
            prepared=True,
            pad_to_multiple=recipe.vocab_multiple,
        )
    tokenizer.save_pretrained(folder / "tokenizer")
    if len(tokenizer) < recipe.vocab_size:
        progress.say(f"the corpus gives {len(tokenizer):,} subwords, not {recipe.vocab_size:,}")
    return tokenizer
