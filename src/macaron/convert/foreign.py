"""A model folder of transformers, as it is read for conversion: settings, weights and vocabulary.

Settings and weights are used once each and checked; what becomes of them is in families.toml.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import BertWordPieceTokenizer, Tokenizer
from torch import Tensor

from macaron.convert.fairseq_checkpoint import plain_tensors, read_pickled
from macaron.errors import MacaronError, first_line, require
from macaron.json_files import Record, read_json
from macaron.limits import LARGEST_VOCABULARY
from macaron.models.load import MODEL_FILES, read_weights
from macaron.settings import load_toml
from macaron.text.subword import added_specials
from macaron.text.tokenizer import convertible
from macaron.text.vocabulary import FILLER, TokenizerKind, specials

#: What the rows of tokens that the foreign model lacks are given in the output: their probability is zero. (It is
#: finite in half precision, too.)
NEVER = -30_000.0
#: Transformers' names of activations, and ours.
ACTIVATIONS = {
    **{"gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "gelu": "gelu"},
    **{"relu": "relu", "swish": "silu", "silu": "silu"},
}


@dataclass
class ForeignFolder:
    """The settings and weights of a folder. Weights that are left at the end would be lost: they are refused.

    Messages do not name the folder: whoever converts it does.
    """

    path: Path
    config: Record
    tensors: dict[str, Tensor]
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        families = load_toml(Path(__file__).with_name("families.toml"))[0]
        self.config.setdefault("model_type", None)
        self.family: Record = families[self.only("model_type", *families)]
        prefix: str = self.family["prefix"]
        self.prefix = prefix if any(name.startswith(prefix) for name in self.tensors) else ""

    @classmethod
    def read(cls, path: Path) -> "ForeignFolder":
        """Read config.json and the weights: safetensors, or PyTorch's own format, of which no code is run."""
        if not (path / "config.json").is_file():
            raise MacaronError("no config.json. Give a folder that save_pretrained of transformers wrote.")
        config = read_json(path / "config.json", Record)
        pickled = path / "pytorch_model.bin"
        if any(path.glob(MODEL_FILES[2])):
            return cls(path, config, read_weights(path))
        require(pickled.is_file(), "no weights (model.safetensors or pytorch_model.bin)")
        return cls(path, config, plain_tensors(pickled, read_pickled(pickled)))

    def only(self, key: str, *supported: Any) -> Any:
        """A setting, one of these values; by default the first."""
        value = self.config.get(key, supported[0])
        if value not in supported:
            known = " or ".join(repr(each) for each in supported)
            raise MacaronError(f"{key} = {value!r} in config.json is not supported; Macaron can convert {known}")
        return value

    def number(self, key: str, default: float | None = None) -> Any:
        """A setting that is a number."""
        value = self.config.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise MacaronError(f"{key} in config.json should be a number, not {value!r}")
        return value

    def token(self, key: str, rows: int, default: int | None = None) -> int | None:
        """The id of a special token."""
        value = self.config.get(key, default)
        if value is not None and (not isinstance(value, int) or not 0 <= value < rows):
            raise MacaronError(f"{key} in config.json should be a token below {rows:,}, not {value!r}")
        return value

    def fields(self) -> dict[str, Any]:
        """The fields of our configuration that the family's table gives; what it does not support is refused."""
        self.only("architectures", None, *([name] for name in self.family["architectures"]))
        for key, values in self.family["supported"].items():
            self.only(key, *values)
        numbers = {ours: self.number(*theirs) for ours, theirs in self.family["fields"].items()}
        activation = ACTIVATIONS[self.only(self.family["activation"], *ACTIVATIONS)]
        return {**self.family["fixed"], **numbers, "activation": activation}

    def weight(self, *names: str) -> Tensor:
        """Weights in float32, several one below the other."""
        found = []
        for name in names:
            require(name in self.tensors, f"the weights lack {name!r}, which config.json calls for")
            self.taken.add(name)
            found.append(self.tensors[name].to(torch.float32))
            finite = bool(torch.isfinite(found[-1]).all())
            require(finite, f"the weights have values that are not finite in {name!r}")
        try:
            return torch.cat(found) if len(found) > 1 else found[0]
        except RuntimeError:
            raise MacaronError(f"the weights {', '.join(map(repr, names))} do not fit together") from None

    def renamed(self, theirs: str, modules: Mapping[str, str], ours: str) -> dict[str, Tensor]:
        """The weights and biases of modules, ``{our name: their names, separated by spaces}``, below these prefixes."""
        return {
            f"{ours}{name}.{kind}": self.weight(*(f"{theirs}{each}.{kind}" for each in given.split()))
            for name, given in modules.items()
            for kind in ("weight", "bias")
        }

    def all_weights(self, config: Any) -> dict[str, Tensor]:
        """The weights that the family's table names, all but the token embedding, by our names."""
        family, start = self.family, self.prefix
        found = {ours: self.weight(start + theirs) for ours, theirs in family["tables"].items()}
        found |= self.renamed(start, family["parts"], "")
        for stack, theirs in family["stacks"].items():
            modules = {**family["modules"], **(family.get("cross", {}) if stack == "decoder" else {})}
            count = getattr(config, f"{stack}_layers", None) or config.num_hidden_layers
            for layer in range(count):
                place = f"{stack}.layers.{layer}.sublayers."
                found |= self.renamed(f"{start}{theirs}.{layer}.", modules, place)
        return found

    def build(self, model_class: Any, config: Any, weights: dict[str, Tensor]) -> Any:
        """The model with these weights; all that config.json calls for are there, and all of the folder's are used."""
        known = re.compile(self.family["ignored"])
        left = sorted(name for name in self.tensors.keys() - self.taken if not known.fullmatch(name))
        if left:
            raise MacaronError(f"the weights contain {left[0]!r} ({len(left)} such), which Macaron does not know")
        with torch.device("meta"):
            model = model_class(config)
        contiguous = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
        try:
            model.load_state_dict(contiguous, strict=True, assign=True)
        except RuntimeError as error:  # it has a line for every weight of another shape
            raise MacaronError(f"the weights do not fit config.json: {str(error).splitlines()[1].strip()}") from None
        return model.train(False)


def reordered(rows: Tensor, order: Sequence[int], missing: float = 0.0) -> Tensor:
    """The rows of a table or a bias in another order; -1 stands for a row that is not there."""
    index = torch.tensor(order)
    new = rows[index.clamp(min=0)].clone()
    new[index < 0] = missing
    return new


def stored_tokenizer(source: ForeignFolder) -> Record:
    """The content of tokenizer.json; of BERT's vocab.txt, if there is only that."""
    path, words = source.path / "tokenizer.json", source.path / "vocab.txt"
    if path.is_file():
        return read_json(path, Record, largest=256 << 20)  # large vocabularies have tens of megabytes
    remedy = "Write one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
    require(source.config.get("model_type") == "bert" and words.is_file(), f"no tokenizer.json. {remedy}")
    lower = bool(tokenizer_settings(source).get("do_lower_case", True))
    content: Record = json.loads(BertWordPieceTokenizer(str(words), lowercase=lower).to_str())
    return content


def tokenizer_settings(source: ForeignFolder) -> Record:
    """The content of tokenizer_config.json, if there is one."""
    path = source.path / "tokenizer_config.json"
    return read_json(path, Record) if path.is_file() else {}


def entries(content: Record) -> dict[int, str]:
    """The tokens of a tokenizer of known parts by id, added ones included."""
    try:
        if not convertible(content):
            raise LookupError
        added = {each["content"]: each["id"] for each in content.get("added_tokens") or []}
        found = {index: token for token, index in {**content["model"]["vocab"], **added}.items()}
    except (LookupError, TypeError, AttributeError):
        raise MacaronError(
            "tokenizer.json has parts that Macaron does not know: BPE and WordPiece can be converted"
        ) from None
    if not all(isinstance(index, int) and 0 <= index < LARGEST_VOCABULARY for index in found):
        raise MacaronError("tokenizer.json: an id is not one of a vocabulary")
    return found


def renumbered(
    content: Record, places: Sequence[int | None], kind: TokenizerKind, rows: int
) -> tuple[Tokenizer, list[int]]:
    """The subword model with our special tokens first; and for every new id the old one, -1 if there is none.

    :param places: the old ids of our special tokens
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
