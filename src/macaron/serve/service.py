"""What the protocols share: who asks, how much, in which languages, and the translations."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request

from macaron.serve.access import Access, Key
from macaron.serve.catalogue import Catalogue
from macaron.serve.engine import Engine, Format, Translated
from macaron.serve.protocols import protocol_of
from macaron.serve.requests import Fields, read_fields, while_connected
from macaron.serve.settings import ServeSettings

AUTO = "auto"
#: Characters that a language is detected from.
_DETECTED = 2000
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Answer:
    """A translation.

    :param source: the language of the text, given or detected
    :param confidence: between 0 and 1 where it was detected
    """

    translated: Translated
    source: str
    confidence: float = 1.0


@dataclass(frozen=True)
class Service:
    """A server's parts, as handlers of requests use them."""

    settings: ServeSettings
    catalogue: Catalogue
    engine: Engine
    access: Access

    async def admit(self, request: Request) -> tuple[Fields, Key | None]:
        """The fields and the key of a request that takes work."""
        fields = await read_fields(request)
        return fields, self.access.admit(request, fields)

    def measure(self, request: Request, texts: Sequence[str], key: Key | None) -> None:
        """Count the characters of a request; too many are refused."""
        size, most = sum(map(len, texts)), self.settings.text_limit
        if size > most:
            status = protocol_of(request.url.path).too_long
            raise HTTPException(status, f"request ({size}) exceeds text limit ({most})")
        self.access.count(key, size)

    def language(self, code: str) -> str:
        """A language as the models name it: ``EN-US`` and ``en_XX`` are ``en`` where only that is known."""
        given = code.replace("_", "-").lower()
        for wanted in (str.lower, _base):
            found = [known for known in self.catalogue.languages if wanted(known) == wanted(given)]
            if found:
                return found[0]
        known = ", ".join(self.catalogue.languages)
        raise HTTPException(400, f"the language {code[:20]} is not supported: this server has {known or 'none'}")

    def detect(self, text: str, target: str | None = None) -> list[tuple[str, float]]:
        """The source languages that a text may have, with confidences between 0 and 1, best first.

        :param target: only languages that are translated into this one, and itself
        """
        found = self.catalogue.detect(_TAG.sub(" ", text[: 4 * _DETECTED])[:_DETECTED])
        if target is None:
            return found
        return [each for each in found if each[0] == target or self.catalogue.pair(each[0], target)]

    async def translate(
        self,
        request: Request,
        texts: Sequence[str],
        source: str,
        target: str,
        format: Format = "text",
        alternatives: int = 0,
        patience: float | None = None,
    ) -> list[Answer]:
        """Translate texts; a text that is in the target language already stays as it is.

        :param source: ``auto`` to detect it, for each text
        :param patience: seconds; by default those of the settings
        """
        into = self.language(target)
        if source.lower() == AUTO:
            ranked = await asyncio.to_thread(lambda: [self.detect(text, into) for text in texts])
            if not all(ranked):
                raise HTTPException(400, f"nothing is translated into {into} here")
            sources = [languages[0] for languages in ranked]
        else:
            sources = [(self.language(source), 1.0)] * len(texts)
        found = [Translated(text) for text in texts]
        groups: dict[str, list[int]] = {}
        for index, (code, _) in enumerate(sources):
            if code != into:
                groups.setdefault(self._model(code, into), []).append(index)

        async def work(model: str, members: list[int]) -> None:
            some = [texts[index] for index in members]
            options = {"format": format, "alternatives": alternatives, "deadline": patience}
            done = await self.engine.translate(model, some, **options)  # type: ignore[arg-type]
            for index, each in zip(members, done, strict=True):
                found[index] = each

        if groups:
            await while_connected(request, asyncio.gather(*(work(*group) for group in groups.items())))
        return [Answer(each, *language) for each, language in zip(found, sources, strict=True)]

    def _model(self, source: str, target: str) -> str:
        model = self.catalogue.pair(source, target)
        if model is None:
            pairs = ", ".join(each.name for each in self.catalogue.translators)
            raise HTTPException(400, f"{source} to {target} is not supported: this server has {pairs}")
        return model.name


def _base(code: str) -> str:
    return code.partition("-")[0].lower()
