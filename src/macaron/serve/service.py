"""What the protocols share: who asks, how much, in which languages, and the translations."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from macaron.serve.access import Access
from macaron.serve.catalogue import Catalogue, ServedModel
from macaron.serve.engine import Engine, TranslatedText
from macaron.serve.protocols import protocol_of
from macaron.serve.requests import Fields, read_fields, while_connected
from macaron.serve.settings import ServeSettings

AUTO = "auto"
#: Characters that a language is detected from.
_DETECTED = 2000
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Service:
    """A server's parts, as handlers of requests use them."""

    settings: ServeSettings
    catalogue: Catalogue
    engine: Engine
    access: Access

    async def admit(self, request: Request) -> tuple[Fields, str]:
        """The fields and the key of a request that takes work."""
        fields = await read_fields(request)
        return fields, self.access.admit(request, fields)

    def measure(self, request: Request, texts: Sequence[str], key: str) -> None:
        """Count the characters of a request; too many are refused."""
        size, most = sum(map(len, texts)), self.settings.text_limit
        if size > most:
            raise HTTPException(protocol_of(request.url.path).too_long, f"request ({size}) exceeds text limit ({most})")
        self.access.characters[key] += size

    def language(self, code: str) -> str:
        """A language as the models name it: ``EN-US`` and ``en_XX`` are ``en`` where only that is known."""
        given, known = code.replace("_", "-").lower(), self.catalogue.languages
        for form in (str.lower, _base):
            if found := [each for each in known if form(each) == form(given)]:
                return found[0]
        raise HTTPException(
            400, f"the language {code[:20]} is not supported: this server has {', '.join(known) or 'none'}"
        )

    def model(self, source: str, target: str) -> ServedModel:
        """The model of a pair of languages."""
        model = self.catalogue.pair(source, target)
        if model is None:
            pairs = ", ".join(each.name for each in self.catalogue.translators)
            raise HTTPException(400, f"{source} to {target} is not supported: this server has {pairs}")
        return model

    def detect(self, text: str, target: str = "") -> list[tuple[str, float]]:
        """The source languages that a text may have, with confidences between 0 and 1, best first.

        :param target: only languages that are translated into this one, and itself
        """
        found = self.catalogue.detect(_TAG.sub(" ", text[: 4 * _DETECTED])[:_DETECTED])
        return [each for each in found if target in ("", each[0]) or self.catalogue.pair(each[0], target)]

    async def translate(
        self, request: Request, texts: Sequence[str], source: str, target: str, **options: Any
    ) -> list[tuple[TranslatedText, str, float]]:
        """Translations, languages of the texts and confidences. A text that is in the target language stays as it is.

        :param source: ``auto`` to detect it, for each text
        :param options: of `Engine.translate`
        """
        into = self.language(target)
        if source.lower() == AUTO:
            ranked = await asyncio.to_thread(lambda: [self.detect(text, into) for text in texts])
            if not all(ranked):
                raise HTTPException(400, f"nothing is translated into {into} here")
            sources = [languages[0] for languages in ranked]
        else:
            sources = [(self.language(source), 1.0)] * len(texts)
        found = [TranslatedText(text) for text in texts]

        async def work(code: str) -> None:
            members = [index for index, (each, _) in enumerate(sources) if each == code]
            some = [texts[index] for index in members]
            done = await self.engine.translate(self.model(code, into).name, some, **options)
            for index, each in zip(members, done, strict=True):
                found[index] = each

        foreign = {code for code, _ in sources} - {into}
        await while_connected(request, asyncio.gather(*map(work, foreign)))
        return [(each, *language) for each, language in zip(found, sources, strict=True)]


def _base(code: str) -> str:
    return code.partition("-")[0].lower()
