"""Converts model folders of transformers to ours: the same outputs, in the networks of this toolkit.

The tokens are numbered anew, since ours begin with the special tokens. Tokens that a foreign vocabulary lacks get a row
of zeros and a bias that makes them impossible.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace

from macaron.convert.fairseq import check_replaceable, description
from macaron.convert.foreign import (
    NEVER,
    ForeignFolder,
    entries,
    renumbered,
    reordered,
    stored_tokenizer,
    tokenizer_settings,
)
from macaron.errors import MacaronError, naming, require
from macaron.json_files import Record, read_json
from macaron.limits import LARGEST_VOCABULARY
from macaron.models.configuration import EncoderConfig, GenerationSettings, LanguageConfig, TranslationConfig
from macaron.models.encoder import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from macaron.models.load import save_model
from macaron.models.network import Network
from macaron.models.translation import LanguageModel, TranslationModel
from macaron.nn.embedding import FIRST_POSITION, sinusoids
from macaron.text.subword import added_specials
from macaron.text.tokenizer import SPACES, MacaronTokenizer
from macaron.text.vocabulary import EOS, FILLER, PAD, UNK, specials, tag_tokens

#: Bytes of a file: 32,000 pieces have less than one megabyte.
LARGEST = 64 << 20
#: The score of one letter of a piece that this side of the translation does not use: any other way to write is better.
UNUSED = -1e6
_UNIGRAM = 1


def gpt2(source: ForeignFolder) -> tuple[Network, MacaronTokenizer, str]:
    """GPT2LMHeadModel: the model, its tokenizer, and what it is called."""
    table = source.weight(source.prefix + source.family["table"])
    rows = len(table)
    source.config["n_inner"] = source.config.get("n_inner") or 4 * source.number("n_embd")
    places: list[int | None] = [None] * len(specials("language"))
    places[EOS] = source.token("eos_token_id", rows, rows - 1)
    pad = source.token("pad_token_id", rows)
    places[PAD] = None if pad == places[EOS] else pad
    backend, order = renumbered(stored_tokenizer(source), places, "language", rows)
    tokenizer = MacaronTokenizer(backend, kind="language", pipeline="plain")
    fingerprint = tokenizer.fingerprint()
    config = LanguageConfig(vocab_size=len(order), tokenizer_fingerprint=fingerprint, **source.fields())
    weights = {
        # Its linear maps are stored as convolutions of width 1: inputs by outputs.
        name: each.T if ".operator." in name and each.dim() == 2 else each
        for name, each in source.all_weights(config).items()
    }
    weights["embedding.tokens.weight"] = reordered(table, order)
    weights["embedding.output_bias"] = reordered(torch.zeros(rows), order, NEVER)
    return source.build(LanguageModel, config, weights), tokenizer, "language model"


def bert(source: ForeignFolder) -> tuple[Network, MacaronTokenizer, str]:
    """BertForMaskedLM, BertForSequenceClassification or BertModel."""
    old_names: dict[str, str] = source.family["old_names"]
    pattern = re.compile("|".join(map(re.escape, old_names)))
    source.tensors = {pattern.sub(lambda old: old_names[old[0]], name): each for name, each in source.tensors.items()}
    table = source.weight(source.prefix + source.family["table"])
    content, named = stored_tokenizer(source), tokenizer_settings(source)
    ids = {token: index for index, token in entries(content).items()}
    places: list[int | None] = [None]  # BERT lacks <s>
    for name, usual in source.family["special"].items():
        given = named.get(f"{name}_token") or usual
        token: Any = given.get("content") if isinstance(given, dict) else given
        require(token in ids, f"the vocabulary lacks {token!r}, the {name} token of tokenizer_config.json")
        places.append(ids[token])
    backend, order = renumbered(content, places, "encoder", len(table))
    tokenizer = MacaronTokenizer.from_backend(backend, kind="encoder", pipeline="plain")
    classifies, predicts = "classifier.weight" in source.tensors, "cls.predictions.bias" in source.tensors
    config = EncoderConfig(
        vocab_size=len(order),
        output_bias=predicts and not classifies,
        pooler=classifies,
        tokenizer_fingerprint=tokenizer.fingerprint(),
        **source.fields(),
        **(_labels(source) if classifies else {}),
    )
    weights = {"embedding.tokens.weight": reordered(table, order), **source.all_weights(config)}
    if not classifies and not predicts:
        return source.build(EncoderModel, config, weights), tokenizer, "encoder"
    weights = {f"model.{name}": each for name, each in weights.items()}
    if classifies:
        weights |= source.renamed("", {"pooler": f"{source.prefix}pooler.dense", "classifier": "classifier"}, "")
        model = source.build(EncoderForSequenceClassification, config, weights)
        return model, tokenizer, f"classifier of {config.num_labels} classes"
    weights |= source.renamed("cls.predictions.transform.", {"dense": "dense", "norm": "LayerNorm"}, "head.")
    weights["model.embedding.output_bias"] = reordered(source.weight("cls.predictions.bias"), order, NEVER)
    return source.build(EncoderForMaskedLM, config, weights), tokenizer, "encoder with a masked-word head"


def _labels(source: ForeignFolder) -> dict[str, Any]:
    problem = source.only("problem_type", None, "single_label_classification", "regression")
    count = len(source.tensors["classifier.weight"])
    names = source.config.get("id2label") or {index: f"LABEL_{index}" for index in range(count)}
    if not isinstance(names, dict) or len(names) != count:
        raise MacaronError(f"id2label in config.json must have {count} names, as many as the classifier has outputs")
    usual = "single_label_classification" if count > 1 else "regression"
    return {"id2label": names, "problem_type": problem or usual}


def marian(source: ForeignFolder, **languages: str) -> tuple[Network, MacaronTokenizer, str]:
    """MarianMTModel, with one vocabulary for both sides: the model, its tokenizer, and what it is called."""
    for key in ("attention_heads", "ffn_dim"):
        source.only(f"decoder_{key}", source.number(f"encoder_{key}"))
    source.only("decoder_vocab_size", source.number("vocab_size"), None)
    fields = source.fields()
    copies = source.family["copies"]
    table = source.weight(next((name for name in copies if name in source.tensors), copies[0]))
    for name in copies:
        if name in source.tensors and not torch.equal(source.weight(name), table):
            raise MacaronError(f"the weights of {name!r} are not shared: models with several tables are not supported")
    for name in source.family["sinusoids"]:
        if name in source.tensors:
            stored = source.weight(name)
            known = sinusoids(torch.arange(len(stored)) + FIRST_POSITION, stored.shape[-1], kind="marian")
            if stored.shape != known.shape or not torch.allclose(stored, known, atol=1e-3):
                raise MacaronError(f"the weights of {name!r} are not sinusoids: trained positions are not supported")
    tokenizer, order = _tokenizer(source, len(table), languages)
    config = TranslationConfig(
        vocab_size=len(order),
        scale_embedding=source.only("scale_embedding", False, True),
        tokenizer_fingerprint=tokenizer.fingerprint(),
        **fields,
    )
    bias = torch.zeros(len(table))
    if "final_logits_bias" in source.tensors:
        bias = source.weight("final_logits_bias").reshape(-1)
    weights = {
        **source.all_weights(config),
        "embedding.tokens.weight": reordered(table, order),
        "embedding.output_bias": reordered(bias, order, NEVER),
    }
    model = source.build(TranslationModel, config, weights)
    # How it is searched by default; older folders say it in config.json.
    path = source.path / "generation_config.json"
    said: Record = {**source.config, **(read_json(path, Record) if path.is_file() else {})}
    search = {name: said.get(name) for name in ("num_beams", "length_penalty", "max_length")}
    model.generation_config = GenerationSettings(**search, suppress_tokens=[PAD])
    return model, tokenizer, "translation"


def _tokenizer(source: ForeignFolder, rows: int, languages: dict[str, str]) -> tuple[MacaronTokenizer, list[int]]:
    """The tokenizer of both sides, and for every new id the old one."""
    vocabulary: dict[str, int] = read_json(source.path / "vocab.json", dict[str, int], largest=64 << 20)
    if sorted(vocabulary.values()) != list(range(len(vocabulary))) or not len(vocabulary) <= rows <= LARGEST_VOCABULARY:
        raise MacaronError(f"vocab.json: {len(vocabulary):,} tokens do not number the {rows:,} rows of the embedding")
    eos, unk = source.token("eos_token_id", rows, 0), vocabulary.get("<unk>")
    if unk is None:
        raise MacaronError("vocab.json: no '<unk>'")
    places = [vocabulary.get("<s>"), source.token("pad_token_id", rows, rows - 1), eos, unk]
    rest = [index for index in range(rows) if index not in places]
    tokens = {index: token for token, index in vocabulary.items()}
    names = [*specials("translation"), *(tokens.get(index, f"{FILLER}{index:04d}") for index in rest)]
    if len(set(names)) < len(names):
        raise MacaronError("vocab.json: a special token is there under another number than config.json says")
    # Models of several target languages want >>fra<< in front of a source: a tag.
    tags = [name for name in names if name.startswith(">>") and name.endswith("<<")]
    backends = []
    for side in ("source", "target"):
        backends.append(unigram(read_sentencepiece(source.path / f"{side}.spm"), names))
        backends[-1].add_special_tokens([*added_specials("translation"), *tag_tokens(tags)])
    stored = tokenizer_settings(source)
    given = {name: languages.get(name) or stored.get(name) for name in ("source_lang", "target_lang")}
    if not all(isinstance(value, str | None) for value in given.values()):
        raise MacaronError("tokenizer_config.json: source_lang and target_lang should be codes of languages")
    made = MacaronTokenizer.from_backend(
        backends[0], target_backend=backends[1], kind="translation", pipeline="plain", tags=tags, **given
    )
    return made, [-1 if place is None else place for place in places] + rest


def read_sentencepiece(path: Path) -> Any:
    """The message in a ``.spm`` file, which is one of a model of the kind ``unigram``."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    except ImportError:
        raise MacaronError("a MarianMT folder needs sentencepiece: pip install 'macaron-net[marian]'") from None
    require(path.is_file(), f"{path}: no such file. A MarianMT folder has source.spm, target.spm and vocab.json.")
    require(path.stat().st_size <= LARGEST, f"{path}: larger than {LARGEST >> 20} MB")
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError:
        raise MacaronError(f"{path}: not a SentencePiece model, or damaged. Copy the folder again.") from None
    if model.trainer_spec.model_type != _UNIGRAM:
        raise MacaronError(f"{path}: a SentencePiece model of another kind than unigram, which is not supported")
    if model.trainer_spec.byte_fallback:
        raise MacaronError(f"{path}: byte_fallback is not supported")
    require(0 < len(model.pieces) <= LARGEST_VOCABULARY, f"{path}: {len(model.pieces):,} pieces")
    return model


def unigram(model: Any, names: Sequence[str]) -> Tokenizer:
    """The tokenizer of a model whose pieces have other numbers: those of ``names``, special tokens first.

    Names that are no pieces of the model are never used, as long as there is another way to write a text. (Letters
    that the model lacks keep the entry that the other side has for them, as with transformers; only there, several such
    letters in a row are one unknown token.)
    """
    # All that 32 bits hold; `tokenizers` reads numbers of more digits back inexactly.
    scores = {each.piece: round(each.score, 6) for each in model.pieces}
    entries = [
        (name, scores.get(name, UNUSED * len(name)) if index > UNK else UNUSED * len(name))
        for index, name in enumerate(names)
    ]
    made, given = Tokenizer(Unigram(entries, UNK, False)), model.normalizer_spec
    steps = [normalizers.Precompiled(given.precompiled_charsmap)] if given.precompiled_charsmap else []
    spaces = normalizers.Replace(Regex(SPACES[0]), SPACES[1])
    made.normalizer = normalizers.Sequence([*steps, normalizers.Strip(), spaces])
    scheme = "always" if given.add_dummy_prefix else "never"
    made.pre_tokenizer = Metaspace(prepend_scheme=scheme)
    made.decoder = MetaspaceDecoder(prepend_scheme=scheme)
    return made


_FAMILIES: dict[str, Callable[..., Any]] = {"gpt2": gpt2, "bert": bert, "marian": marian}


def convert_huggingface(folder: str | Path, out: str | Path, *, force: bool = False, **settings: Any) -> list[str]:
    """Convert a folder that ``save_pretrained`` of transformers wrote.

    :param settings: ``source_lang`` and ``target_lang`` of a translation model, by default those it names
    :returns: a description in lines
    """
    folder, out = Path(folder), Path(out)
    given = {name: value for name, value in settings.items() if value}
    with naming(folder):
        source = ForeignFolder.read(folder)
        family = source.config["model_type"]
        if given and family != "marian":
            raise MacaronError(f"{next(iter(given))} is for translation models: leave it out")
        model, tokenizer, title = _FAMILIES[family](source, **given)
    check_replaceable(out, force)
    save_model(out, model, model.state_dict(), tokenizer)
    return description(title, model, out)
