"""The engine through a real server: what it answers, and how it ends."""

from collections.abc import Callable

from served import TRANSLATION, Served

SENTENCE = "Martin wusch deine Katze."


def test_a_sentence(server: Served):
    assert server.ask("/health") == (200, {"status": "ok"})
    from macaron.decode import Translator

    assert server.translate(SENTENCE) == Translator(TRANSLATION, device="cpu").translate(SENTENCE)


def test_sigterm_ends_it_in_good_order(start_server: Callable[..., Served]):
    served = start_server()
    assert served.stop() == (0, "")
