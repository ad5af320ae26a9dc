"""Converts model folders of transformers to ours: the same outputs, in the networks of this toolkit.

The tokens are numbered anew, since ours begin with the special tokens. Tokens that a foreign vocabulary lacks get a row
of zeros and a bias that makes them impossible.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from macaron.convert import text_models
from macaron.convert.fairseq import Conversion, check_replaceable, description
from macaron.convert.foreign import Converted, ForeignFolder
from macaron.errors import MacaronError, naming
from macaron.models.load import save_model

#: By model_type in config.json.
_FAMILIES: dict[str, Callable[..., Converted]] = {
    "gpt2": text_models.gpt2,
}


def convert_huggingface(folder: str | Path, out: str | Path, *, force: bool = False, **settings: Any) -> Conversion:
    """Convert a folder that ``save_pretrained`` of transformers wrote.

    :param force: replace an existing model folder
    :param settings: ``source_lang`` and ``target_lang`` of a translation model, by default those it names
    """
    folder, out = Path(folder), Path(out)
    check_replaceable(out, force)
    source = ForeignFolder.read(folder)
    given = {name: value for name, value in settings.items() if value}
    with naming(folder):
        family = source.only("model_type", *_FAMILIES)
        if given and family != "marian":
            raise MacaronError(f"{next(iter(given))} is for translation models: leave it out")
        made = _FAMILIES[family](source, **given)
    check_replaceable(out, force)  # again: the conversion may have taken long
    save_model(out, made.model, made.model.state_dict(), made.tokenizer)
    return Conversion(description(made.title, made.model, out), ())
