"""Many users at once: everybody gets the translation of their own text, as the Translator alone gives it."""

import asyncio
import json
import re
from collections.abc import Callable

import pytest

from macaron.decode import Translator
from served import FIXTURES, TRANSLATION, Served, finished, post

SENTENCES = (FIXTURES / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()


def marked(user: int, sentences: int) -> str:
    """A text of a user, with a line that is kept in every translation."""
    chosen = [SENTENCES[(user * 7 + i * 31) % len(SENTENCES)] for i in range(sentences)]
    return f"{' '.join(chosen)}\n#{user:06d}#"


async def ask_all(port: int, users: int, text: Callable[[int, int], str], rounds: int) -> list[tuple[str, str]]:
    """What all users get who ask at the same time, each one thing after another."""

    async def ask(user: int) -> list[tuple[str, str]]:
        connection = await asyncio.open_connection("127.0.0.1", port)
        found = []
        for number in range(rounds):
            sent = text(user, number)
            body = {"q": sent, "source": "de", "target": "en"}
            status, _, content = await post(port, "/translate", body, connection)
            assert status == 200, content
            found.append((sent, json.loads(content)["translatedText"]))
        connection[1].close()
        return found

    return [each for some in await asyncio.gather(*map(ask, range(users))) for each in some]


@pytest.mark.parametrize(
    ("users", "rounds"), [(60, 1), pytest.param(300, 4, marks=pytest.mark.slow)], ids=["60 users", "300 users"]
)
def test_nobody_gets_the_text_of_another(server: Served, users: int, rounds: int):
    # Most users send a sentence, every tenth a page.
    found = finished(
        ask_all(server.port, users, lambda user, i: marked(user + 1000 * i, 12 if user % 10 == 9 else 1), rounds)
    )
    assert len(found) == users * rounds
    translator = Translator(TRANSLATION, device="cpu")
    wanted = translator.translate([sent for sent, _ in found])
    for (sent, answer), translation in zip(found, wanted, strict=True):
        assert answer == translation
        assert re.findall(r"#\d+#", translation) == re.findall(r"#\d+#", sent)
