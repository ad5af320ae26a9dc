"""Model folders of all kinds of models: found, checked, read and written.

A checkpoint of a training run has the files of a model folder, too, but its weights are in a file of another name.
torch is imported where weights are read or written: a folder that is missing is reported without it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from macaron.errors import MacaronError, first_line, naming, require, resume_command
from macaron.files import atomic_folder, write_json, write_text
from macaron.json_files import Record, conforming, read_json
from macaron.models.configuration import GenerationSettings
from macaron.seal import begin, checked, seal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Each kind of model, and what is wrong with a model of another kind.
_WRONG = {"translation": "cannot translate", "encoder": "is not a text encoder", "language": "is not a language model"}
#: What encoders have besides the encoder itself: each kind of model has some of it.
ENCODER_HEADS = ("classifier.", "head.", "next_sentence.", "pooler.")
_CONFIG, _GENERATION = "config.json", "generation_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
#: What is written with a model, by us or by transformers; the tokenizer is written apart.
MODEL_FILES = (_CONFIG, _GENERATION, "model*.safetensors", _INDEX)
#: The model card, and the end of one that training wrote: the digest of all before it.
CARD = "README.md"
_WRITTEN = re.compile(rb"(.*)<!-- macaron ([0-9a-f]{64}) -->\n", re.DOTALL)
_REMEDY = "Copy the folder again."
#: The weights of a checkpoint; their names begin with ``model.``, which a model folder's do not.
CHECKPOINT_WEIGHTS = "weights.safetensors"
#: What a model is loaded from; a folder may hold more, which others write.
USED_FILES = (*MODEL_FILES, CHECKPOINT_WEIGHTS, "tokenizer.json", "tokenizer_config.json", "target_tokenizer.json")


def find_folder(path: str | Path, *kinds: str) -> Path:
    """The model folder at a path: the folder itself, or that of a run. Its files exist, if unread.

    Its model is of one of these kinds (``translation``, ``encoder``, ``language``), or of any.

    A run without a final model gives its best checkpoint, and a line on stderr says so.
    """
    folder = Path(path)
    if not (folder / _CONFIG).is_file():
        found = run_model(folder) or folder
        if found.name != "model" and found != folder:
            update = int(found.name.partition("-")[2])
            which = "the best so far" if found.name.startswith("best-") else "the last"
            using = f"using its checkpoint of update {update:,} ({which})"
            finish = f"To finish the run: {resume_command(folder)}"
            print(f"{folder} has no final model yet: {using}. {finish}", file=sys.stderr)
        folder = found
    require(folder.exists(), f"{folder}: no such folder. Give a model folder, such as RUN/model.")
    require(folder.is_dir(), f"{folder} is a file; give its folder")
    begin(folder, USED_FILES)
    found_type = stored_type(folder)
    if found_type not in [f"macaron-{kind}" for kind in kinds or _WRONG]:
        wrong = f"{_WRONG[kinds[0]]}; expected 'macaron-{kinds[0]}'" if kinds else "has no splitting scheme"
        raise MacaronError(f"{folder}: a model of type {found_type!r} {wrong}")
    if not any((folder / name).is_file() for name in (_WEIGHTS, _INDEX, CHECKPOINT_WEIGHTS)):
        raise MacaronError(f"{folder}: the weights are missing ({_WEIGHTS}). Copy the folder again.")
    lacks = f"{folder}: the tokenizer is missing (tokenizer.json and tokenizer_config.json)"
    whole = (folder / "tokenizer.json").is_file()
    require(whole, f"{lacks}. It is saved with the weights: copy the folder again.")
    return folder


def run_model(run: Path) -> Path | None:
    """The model folder of a run: the final one, else the best checkpoint by validation, else the last; None if none."""
    if (run / "model" / _CONFIG).is_file():
        return run / "model"
    found = [*checkpoints(run / "checkpoints"), *checkpoints(run / "checkpoints", "best")]
    return found[-1] if found else None


def checkpoints(folder: Path, kind: str = "update") -> list[Path]:
    """All checkpoints in a folder, oldest first.

    :param kind: ``update`` (complete states) or ``best`` (the best weights when written)
    """
    name = re.compile(rf"{kind}-\d{{8,}}")
    found = [path for path in folder.iterdir() if name.fullmatch(path.name)] if folder.is_dir() else []
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name.partition("-")[2]))


def run_of(folder: Path) -> Path | None:
    """The run that a model folder or a checkpoint belongs to, if any."""
    place = folder.resolve()
    run = place.parents[1] if place.parent.name == "checkpoints" else place.parent
    inside = place.parent.name == "checkpoints" or place.name == "model"
    return run if inside and (run / "recipe.toml").is_file() else None


def stored_type(folder: Path) -> Any:
    """The type of model that a folder's config.json names."""
    if not (folder / _CONFIG).is_file():
        what = "not a model folder, it has no config.json. `macaron train` writes one as RUN/model; `macaron convert` "
        what += "makes one from a foreign checkpoint."
        if (folder / CHECKPOINT_WEIGHTS).is_file():
            what = "this checkpoint of an earlier version lacks config.json and the tokenizer. Use the version that "
            what += "wrote it."
        elif (folder / "recipe.toml").is_file():
            what = f"no model and no checkpoint yet. Continue the run: {resume_command(folder)}"
        raise MacaronError(f"{folder}: {what}")
    return read_json(folder / _CONFIG, Record, _REMEDY).get("model_type")


def model_kind(folder: Path) -> Any:
    """``translation``, ``encoder`` or ``language``."""
    return str(stored_type(folder)).removeprefix("macaron-")


def load_config(folder: Path, config_class: Any, **changes: Any) -> Any:
    """The configuration of a folder, with these fields changed."""
    stored = read_json(folder / _CONFIG, Record, _REMEDY)
    with naming(folder / _CONFIG):
        return config_class.from_dict({**stored, **changes})


def load_model(
    folder: Path,
    model_class: Any,
    dtype: torch.dtype | None = None,
    heads: Sequence[str] = (),
    device: torch.device | None = None,
    **changes: Any,
) -> tuple[Any, list[str]]:
    """A model in evaluation mode, checked to be complete, and the names of the weights that its heads lack.

    :param dtype: of the weights; by default the one that they were saved in
    :param device: that the weights are read to; what its heads lack is on the CPU
    :param heads: prefixes of weights that may be missing (they are drawn anew) or superfluous: another task's
    """
    with checked(folder, USED_FILES):
        import torch

        config = load_config(folder, model_class.config_class, **changes)
        with naming(folder / _CONFIG), torch.device("meta"):  # nothing is allocated or drawn
            model = model_class(config)
        if hasattr(model, "generation_config") and (folder / _GENERATION).exists():
            said = read_json(folder / _GENERATION, Record, _REMEDY)
            with naming(folder / _GENERATION):
                model.generation_config = GenerationSettings.from_dict(said)
        stored = read_weights(folder)
        expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if hasattr(model, "model") and not any(name.startswith("model.") for name in stored):
            stored = {f"model.{name}": tensor for name, tensor in stored.items()}  # a model saved without a head
        kept = {n: each for n, each in stored.items() if each.shape == expected.get(n) and each.is_floating_point()}
        lacking = sorted(expected.keys() - kept.keys())
        missing = [name for name in lacking if not name.startswith(tuple(heads))]
        unknown = sorted(name for name in stored.keys() - expected.keys() if not name.startswith(tuple(heads)))
        if unknown and unknown[0].startswith("classifier."):
            what = "a classifier, for macaron predict. Give the model that it was fine-tuned from."
            raise MacaronError(f"{folder}: {what}")
        if missing or unknown:
            what = f"contain {unknown[0]!r}, which the model does not have" if unknown else f"lack {missing[0]!r}"
            if missing and missing[0] in stored:
                what = f"have {missing[0]!r} in another shape or type"
            raise MacaronError(
                f"{folder}: the weights {what}. They do not belong to this config.json: copy the folder again."
            )
        for name in lacking:
            leaf: Any = model.get_submodule(name.rpartition(".")[0]).to_empty(device="cpu")
            leaf.reset_parameters()
        kind = dtype or next((each.dtype for each in stored.values() if each.is_floating_point()), torch.float32)
        # Copies: the file is only mapped into memory, and may be replaced while the model lives.
        weights = {name: each.to(device, kind, copy=True) for name, each in kept.items()}
        for name, tensor in weights.items():
            # A sum is quicker; where it overflows, the values themselves decide.
            if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
                raise MacaronError(f"{folder}: the weights contain non-finite values in {name!r}")
        model.load_state_dict(weights, strict=False, assign=True)
        return model.to(kind).eval(), lacking


def save_model(
    folder: Path,
    model: Any,
    weights: Mapping[str, Tensor] | None,
    tokenizer: Any,
    config: Any = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a model folder with its tokenizer: completely, or not at all. A user's model card stays.

    The tokenizer gets the model's longest input: transformers warns of a longer one, and truncates there.

    :param weights: as in `write_model`, as is ``config``
    :param more: further files, as JSON, by their paths in the folder
    """
    tokenizer.model_max_length = (config or model.config).longest_input
    with atomic_folder(folder) as partial:
        write_model(partial, model, weights, config)
        tokenizer.save_pretrained(partial)
        keep_card(folder, partial)
        for path, content in (more or {}).items():
            write_json(partial / path, content)
        if more:
            seal(partial, more)


def write_card(folder: Path, text: str) -> None:
    """Write the model card of a folder, unless there is one that a user has written or edited."""
    if not has_own_card(folder):
        write_text(folder / CARD, f"{text}<!-- macaron {hashlib.sha256(text.encode()).hexdigest()} -->\n")


def keep_card(folder: Path, new: Path) -> None:
    """Copy a user's model card of a folder to the one that takes its place."""
    if has_own_card(folder):
        shutil.copyfile(folder / CARD, new / CARD)


def has_own_card(folder: Path) -> bool:
    """Whether a folder has a model card that is not as training wrote it."""
    if not (folder / CARD).is_file():
        return False
    found = _WRITTEN.fullmatch((folder / CARD).read_bytes())
    return found is None or hashlib.sha256(found[1]).hexdigest() != found[2].decode()


def write_model(folder: Path, model: Any, weights: Mapping[str, Tensor] | None = None, config: Any = None) -> None:
    """Write config.json, generation_config.json and model.safetensors into a folder, as transformers reads them.

    :param weights: other than the model's own, by their names in the model
    """
    from safetensors.torch import save_file

    given = model.state_dict() if weights is None else weights
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in given.items()}
    dtype = next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
    write_config(folder, model, dtype, config)
    try:
        save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number), str(folder / _WEIGHTS)) from error
    seal(folder, MODEL_FILES)


def write_config(folder: Path, model: Any, dtype: torch.dtype, config: Any = None) -> None:
    """Write config.json, which names the weights' dtype, and generation_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config or model.config
    if hasattr(model, "generation_config"):
        tokens = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        special = {name: config.to_dict()[name] for name in tokens}
        write_json(folder / _GENERATION, {**special, **model.generation_config.to_diff_dict()})
    added = {"architectures": [type(model).__name__], "dtype": str(dtype).removeprefix("torch.")}
    write_json(folder / _CONFIG, dict(sorted({**config.to_dict(), **added}.items())))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder: one file, or several that an index names; or those of a checkpoint."""
    from safetensors.torch import load_file

    files = [name for name in (_WEIGHTS, CHECKPOINT_WEIGHTS) if (folder / name).is_file()][:1]
    if not files:
        index = read_json(folder / _INDEX, Record, _REMEDY)
        named = conforming(dict[str, str], index.get("weight_map"), f"{folder / _INDEX}, weight_map", _REMEDY)
        files = sorted({Path(file).name for file in named.values()})
    try:
        found = {name: tensor for file in files for name, tensor in load_file(folder / file).items()}
    except Exception as error:  # safetensors raises nearly anything for a damaged file
        what = "the weights cannot be read; the file is damaged or does not fit config.json"
        raise MacaronError(f"{folder}: {what}. {_REMEDY} ({first_line(error)})") from error
    prefix = "model." if files == [CHECKPOINT_WEIGHTS] else ""
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}
