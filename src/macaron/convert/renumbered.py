"""Foreign vocabularies: read from tokenizer.json or vocab.txt, and numbered as ours are, special tokens first."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from macaron.convert.foreign import ForeignFolder
from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.json_files import Record, read_json
from macaron.limits import LARGEST_VOCABULARY
from macaron.models.load import first_line
from macaron.text.subword import added_specials
from macaron.text.vocabulary import FILLER, TokenizerKind, specials

#: Bytes of a tokenizer.json: those of large vocabularies have tens of megabytes.
LARGEST_TOKENIZER = 256 << 20


def stored_tokenizer(source: ForeignFolder) -> Record:
    """The content of tokenizer.json; of BERT's vocab.txt, if there is only that."""
    path, words = source.path / "tokenizer.json", source.path / "vocab.txt"
    if path.is_file():
        return read_json(path, Record, largest=LARGEST_TOKENIZER)
    if source.config.get("model_type") != "bert" or not words.is_file():
        raise MacaronError(
            "no tokenizer.json. Write one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    vocabulary = {token: index for index, token in enumerate(read_lines(words))}
    made = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    lower = bool(tokenizer_settings(source).get("do_lower_case", True))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=lower), BertPreTokenizer()
    made.decoder = WordPieceDecoder()
    content: Record = json.loads(made.to_str())
    return content


def tokenizer_settings(source: ForeignFolder) -> Record:
    """The content of tokenizer_config.json, if there is one."""
    path = source.path / "tokenizer_config.json"
    return read_json(path, Record) if path.is_file() else {}


def entries(content: Record) -> dict[int, str]:
    """The tokens of a tokenizer by id, added ones included."""
    vocabulary = content.get("model", {}).get("vocab")
    if not isinstance(vocabulary, dict):
        raise MacaronError("tokenizer.json: a vocabulary by token was expected (BPE or WordPiece)")
    added = {each["content"]: each["id"] for each in content.get("added_tokens") or []}
    found = {index: token for token, index in {**vocabulary, **added}.items()}
    if not all(isinstance(index, int) and 0 <= index < LARGEST_VOCABULARY for index in found):
        raise MacaronError("tokenizer.json: an id is not one of a vocabulary")
    return found


def renumbered(
    content: Record, places: Sequence[int | None], kind: TokenizerKind, rows: int
) -> tuple[Tokenizer, list[int]]:
    """The subword model with our special tokens first; and for every new id the old one, -1 if there is none.

    :param places: the old ids of our special tokens
    :param rows: of the embedding
    """
    tokens = entries(content)
    if max(tokens, default=0) >= rows:
        raise MacaronError(f"tokenizer.json has the id {max(tokens)}, but the embedding has {rows} rows")
    rest = [index for index in range(rows) if index not in places]
    order = [-1 if place is None else place for place in places] + rest
    names = [*specials(kind), *(tokens.get(index, f"{FILLER}{index:04d}") for index in rest)]
    if len(set(names)) < len(names):
        twice = next(name for name in specials(kind) if names.count(name) > 1)
        raise MacaronError(f"tokenizer.json: {twice!r} is an ordinary token, while Macaron has it as a special one")
    new = {name: index for index, name in enumerate(names)}
    model: dict[str, Any] = {**content["model"], "vocab": new}
    if model.get("unk_token") is not None:
        model["unk_token"] = specials(kind)[3]
    others = [each for each in content.get("added_tokens") or [] if each["id"] not in places]
    changed = {
        **content,
        "model": model,
        "added_tokens": [{**each, "id": new[each["content"]]} for each in others],
        **dict.fromkeys(("post_processor", "truncation", "padding")),
    }
    try:
        backend = Tokenizer.from_str(json.dumps(changed))
    except Exception as error:  # tokenizers raises nearly anything
        raise MacaronError(f"tokenizer.json cannot be read ({first_line(error)})") from error
    backend.add_special_tokens(added_specials(kind))
    return backend, order
