"""Words to text: punctuation and the capital at the beginning, alike in both languages."""

from collections.abc import Sequence


def finish(words: Sequence[str], mark: str) -> str:
    """Join words, set commas (never two, never before the final mark), capitalise, close with `mark`."""
    text = " ".join(words).replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark
