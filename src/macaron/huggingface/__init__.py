"""Transformers' classes around our networks and tokenizer: Auto classes, ``generate``, ``Trainer``, pipelines.

Importing transformers takes seconds: it is imported when one of these names is first used. ``import macaron`` must be
light, yet ``AutoModelForSeq2SeqLM.from_pretrained(folder)`` must work after it. So the registration is attached to the
import of transformers' own ``auto`` modules: it runs right after the module that holds the mapping has been executed,
or at once if that has already happened.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from macaron import lazy

if TYPE_CHECKING:
    from macaron.huggingface.configuration import HFEncoderConfig as HFEncoderConfig
    from macaron.huggingface.configuration import HFLanguageConfig as HFLanguageConfig
    from macaron.huggingface.configuration import HFTranslationConfig as HFTranslationConfig
    from macaron.huggingface.models import HFEncoderForMaskedLM as HFEncoderForMaskedLM
    from macaron.huggingface.models import HFEncoderForPreTraining as HFEncoderForPreTraining
    from macaron.huggingface.models import HFEncoderForSequenceClassification as HFEncoderForSequenceClassification
    from macaron.huggingface.models import HFEncoderModel as HFEncoderModel
    from macaron.huggingface.models import HFLanguageModel as HFLanguageModel
    from macaron.huggingface.models import HFTranslationModel as HFTranslationModel
    from macaron.huggingface.tokenizer import HFTokenizer as HFTokenizer

__getattr__ = lazy(__name__, __file__)


_AUTO = [f"transformers.models.auto.{name}_auto" for name in ("configuration", "tokenization", "modeling")]


def _register(name: str) -> None:
    """Register with the Auto classes of one of these modules, which has been imported."""
    from macaron.huggingface.configuration import CONFIGURATIONS

    auto: Any = sys.modules[name]
    if name == _AUTO[0]:
        for config in CONFIGURATIONS:
            auto.AutoConfig.register(config.model_type, config, exist_ok=True)
    elif name == _AUTO[1]:
        from macaron.huggingface.tokenizer import HFTokenizer

        for config in CONFIGURATIONS:
            auto.AutoTokenizer.register(config, fast_tokenizer_class=HFTokenizer, exist_ok=True)
    else:
        from macaron.huggingface import models

        for auto_class, model in (
            (auto.AutoModel, models.HFTranslationModel),
            (auto.AutoModelForSeq2SeqLM, models.HFTranslationModel),
            (auto.AutoModel, models.HFLanguageModel),
            (auto.AutoModelForCausalLM, models.HFLanguageModel),
            (auto.AutoModel, models.HFEncoderModel),
            (auto.AutoModelForMaskedLM, models.HFEncoderForMaskedLM),
            (auto.AutoModelForPreTraining, models.HFEncoderForPreTraining),
            (auto.AutoModelForSequenceClassification, models.HFEncoderForSequenceClassification),
        ):
            auto_class.register(model.config_class, model, exist_ok=True)


class _Watcher(MetaPathFinder):
    """Finds nothing itself: it lets the other finders work, and registers after the modules in ``_AUTO`` have run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others if name in _AUTO)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register(name)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_when_imported() -> None:
    """Register now what transformers has already loaded, and the rest when it is."""
    for name in _AUTO:
        if name in sys.modules:
            _register(name)
    if not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())
