"""The engine with real workers: turns, refusals, deadlines, clients that have gone, workers that die."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from macaron.decode import Translator
from macaron.decode.documents import split_document, translate_document
from macaron.errors import MacaronError
from macaron.models.catalogue import Catalogue
from macaron.serve.engine import Engine, ServeSettings, WorkerLost
from served import CLASSIFIER, FIXTURES, TRANSLATION, finished, held, until

SENTENCES = (FIXTURES / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()


class Running:
    """An engine in an event loop of its own thread."""

    def __init__(self, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        catalogue = Catalogue([str(TRANSLATION), str(CLASSIFIER)])
        self.engine = Engine(ServeSettings(**{"device": "cpu", "workers": 1, **settings}), catalogue)
        self.wait(self.engine.start())

    def begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.begin(work).result(timeout=120)

    def translate(self, *texts: str, **options: Any) -> Any:
        """Begin to translate."""
        return self.begin(self.engine.translate("de-en", list(texts), **options))

    @property
    def pids(self) -> list[int]:
        return [worker._process.pid for worker in self.engine._workers if worker._process is not None]

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the workers, which have nothing to do at its start, stand still."""
        until(lambda: all(worker.alive and not worker.batch for worker in self.engine._workers), "a worker is not free")
        with held(*self.pids):
            yield

    def waiting(self, requests: int) -> None:
        """Wait until a batch is in a worker, and so many requests in the queue."""
        until(lambda: any(worker.batch for worker in self.engine._workers), "no batch")
        until(lambda: len(self.engine._queue) == requests, "other requests in the queue")

    def end(self) -> None:
        self.wait(self.engine.stop(10))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    started = Running(queue=4)
    yield started
    started.end()


@pytest.fixture(scope="module")
def translate() -> Callable[[str], str]:
    """What the Translator alone says."""
    return Translator(TRANSLATION, device="cpu").translate


def test_texts_as_the_translator_translates_them(running: Running, translate: Callable[[str], str]):
    texts = [
        " ".join(SENTENCES[:3]),
        f"- {SENTENCES[3]}\n\n\t2. {SENTENCES[4]}  {SENTENCES[5]}\n",
        "",
        "  \n12 / 7\n",
        f"{SENTENCES[6]} https://example.org/a?b=c {SENTENCES[7]}",
        " und ".join(SENTENCES[:40]),  # longer than the model takes at once
        "x" * 3000,
    ]
    assert [each[0] for each in running.translate(*texts).result()] == [translate(text) for text in texts]
    assert running.translate().result() == []


def test_documents_as_the_command_line_translates_them(running: Running):
    translator = Translator(TRANSLATION, device="cpu")
    page = f"<h1>{SENTENCES[0]}</h1><p>Martin <b>wusch</b> deine <i>Katze</i>.</p><pre>kein Text</pre>"
    subtitles = f"1\n00:00:01,000 --> 00:00:02,000\n<i>{SENTENCES[1]}</i>\n\n"
    for text, form in ((page, "html"), (subtitles, "srt")):
        [found] = running.translate(text, format=form).result(timeout=120)
        assert found == [translate_document(translator, text, form)[0]]
        assert found != [text]


def test_alternatives(running: Running):
    lines = SENTENCES[:6]
    wanted = Translator(TRANSLATION, device="cpu").translate_nbest(lines, nbest=3, bound=True)
    found = running.translate(*lines, alternatives=2).result()
    for each, best in zip(found, wanted, strict=True):
        texts = list(dict.fromkeys(hypothesis.text for hypothesis in best))
        assert each == texts


def test_alternatives_have_alignments_of_their_own(running: Running):
    """Tags and addresses are placed by the words of each translation, not by those of the best one."""
    translator = Translator(TRANSLATION, device="cpu")
    page = "<p>Martin <b>wusch</b> https://a.org/b deine <i>Katze</i>.</p>"
    document = split_document(page, "html", "de")
    wanted = [each.text for each in translator.translate_nbest(document.sentences, nbest=6, bound=True)[0]]
    alignments = translator.align(document.sentences * len(wanted), wanted)
    texts = [document.join([text], [each], "en") for text, each in zip(wanted, alignments, strict=True)]
    [found] = running.translate(page, format="html", alternatives=5).result(timeout=120)
    assert found == list(dict.fromkeys(texts))


def test_a_short_sentence_does_not_wait_for_a_document(running: Running, translate: Callable[[str], str]):
    order: list[str] = []
    document = "\n".join(SENTENCES)
    with running.held():
        long = running.translate(document)
        long.add_done_callback(lambda _: order.append("document"))
        running.waiting(1)
        short = running.translate(SENTENCES[0])
        short.add_done_callback(lambda _: order.append("sentence"))
    assert short.result(timeout=120)[0][0] == translate(SENTENCES[0])
    assert long.result(timeout=120)[0][0] == translate(document)
    assert order == ["sentence", "document"]


def test_a_client_that_has_gone_takes_its_sentences_along(running: Running):
    with running.held():
        first = running.translate(SENTENCES[0])
        running.waiting(0)
        gone = running.translate("\n".join(SENTENCES))
        running.waiting(1)
        gone.cancel()
        running.waiting(0)
    assert first.result(timeout=120)


def test_more_than_the_queue_holds_is_refused_at_once_and_the_rest_is_done(running: Running):
    with running.held():
        first = running.translate(SENTENCES[0])
        running.waiting(0)
        others = [running.translate(SENTENCES[1]) for _ in range(4)]
        running.waiting(4)
        with pytest.raises(HTTPException) as refused:
            running.translate(SENTENCES[2]).result(timeout=60)  # while the worker stands still
        assert refused.value.status_code == 503
        assert int(refused.value.headers["Retry-After"]) >= 1
    assert first.result(timeout=120)
    assert all(each.result(timeout=120) for each in others)


def test_what_would_be_done_too_late_is_refused(running: Running):
    assert running.translate(*SENTENCES[:50]).result(timeout=120)  # now its speed is known
    with running.held():
        first = running.translate(SENTENCES[0])
        running.waiting(0)
        document = running.translate("\n".join(SENTENCES))
        running.waiting(1)
        with pytest.raises(HTTPException, match="503"):
            running.translate("\n".join(SENTENCES), deadline=1e-3).result(timeout=60)
    assert first.result(timeout=120)
    assert document.result(timeout=120)


def test_deadline(running: Running):
    with running.held():
        late = running.translate(SENTENCES[0], deadline=0.05)
        with pytest.raises(HTTPException, match="504"):
            late.result(timeout=60)
    assert running.translate(SENTENCES[0]).result(timeout=120)


def test_a_worker_that_dies_loses_its_own_requests_only(running: Running, translate: Callable[[str], str]):
    [pid] = running.pids
    with running.held():
        lost = running.translate(SENTENCES[0])
        running.waiting(0)
        waiting = running.translate(SENTENCES[1])
        running.waiting(1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not running.engine.alive, "the engine has not noticed")
    with pytest.raises(WorkerLost):
        lost.result(timeout=60)
    assert waiting.result(timeout=120)[0][0] == translate(SENTENCES[1])
    assert running.engine.alive
    assert running.pids != [pid]


def test_a_worker_that_dies_without_work_is_started_again(running: Running, translate: Callable[[str], str]):
    [pid] = running.pids
    os.kill(pid, signal.SIGKILL)
    until(lambda: running.pids != [pid] and running.engine.alive, "nobody starts it")
    assert running.translate(SENTENCES[0]).result(timeout=120)[0][0] == translate(SENTENCES[0])


def test_tasks_of_encoders(running: Running):
    from macaron.tasks.classifier import Predictor
    from macaron.tasks.embedder import Embedder

    texts = ["A cat.", "Martin washed your cat."]

    def call(task: str, inputs: Any, **parameters: Any) -> Any:
        return running.wait(running.engine.do("classifier", task, [inputs], parameters))[0]

    predictor = Predictor(CLASSIFIER, "cpu")
    [first, second] = call("text_classification", texts, top_k=2)
    for found, wanted in zip((first, second), predictor.predict([texts]), strict=True):
        assert {each["label"]: each["score"] for each in found} == pytest.approx(wanted["probabilities"], abs=1e-6)
        assert found[0]["score"] >= found[1]["score"]
    assert len(call("text_classification", texts, top_k=1)[0]) == 1
    vectors = Embedder(CLASSIFIER, "cpu").embed(texts)
    assert call("feature_extraction", texts) == [pytest.approx(row, abs=1e-6) for row in vectors.tolist()]
    raw = call("feature_extraction", texts, normalize=False)
    assert sum(value**2 for value in raw[0]) != pytest.approx(1.0)
    with pytest.raises(MacaronError, match="no head for masked words"):
        call("fill_mask", ["A <mask>."])
    with pytest.raises(MacaronError, match="no task"):
        call("sing", [])


def test_the_page_of_particles(running: Running):
    for model, sentence in (("de-en", SENTENCES[0]), ("classifier", "A cat.")):
        [page] = running.wait(running.engine.do(model, "particles", [sentence], {}))
        assert page.startswith("<!doctype html>")
        assert sentence in page
    with pytest.raises(MacaronError, match=r"^classifier: the sentence has"):  # no path of ours in a message
        running.wait(running.engine.do("classifier", "particles", [SENTENCES[0] * 2], {}))


@pytest.mark.slow
def test_several_workers(translate: Callable[[str], str]):
    started = Running(workers=2)
    try:
        assert len(set(started.pids)) == 2
        with held(started.pids[0]):  # one that stands still does not stop the other
            lost = started.translate(SENTENCES[0])
            started.waiting(0)
            assert [len(worker.batch) for worker in started.engine._workers] == [1, 0]
            found = [started.translate(each) for each in SENTENCES[:20]]
            assert [each.result(timeout=120)[0][0] for each in found] == [translate(each) for each in SENTENCES[:20]]
            os.kill(started.pids[0], signal.SIGKILL)
            assert started.engine.alive
        with pytest.raises(WorkerLost):
            lost.result(timeout=120)
    finally:
        started.end()


def test_a_model_that_cannot_be_loaded_is_said_at_the_start(tmp_path: Any):
    import shutil

    folder = tmp_path / "broken"
    shutil.copytree(TRANSLATION, folder)
    (folder / "model.safetensors").write_bytes(b"no weights")
    engine = Engine(ServeSettings(), Catalogue([str(folder)]))
    with pytest.raises(MacaronError, match="weights cannot be read"):
        finished(engine.start())
    assert not engine.alive
