"""The page of `export.py --to page` in a real browser, from Python's own web server."""

import json
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from board import standalone
from data.play.grammar import grammar, play
from export import main
from tests.conftest import needed, written
from tests.trained.conftest import small_run
from trained.answers import answer
from trained.load import load_trained

ASK = """async ([text, exact]) => {
  const { ask } = await import("/models.js");
  return await ask("", "POST", { text, exact, top: 64, blank: "_" });
}"""
SENTENCE = "Ne daz r_nts iv Insk darku"
HIDDEN = SENTENCE.replace("a", "_")


class Unpacking(SimpleHTTPRequestHandler):
    """A host that has the browser unpack files with gzip."""

    def end_headers(self):
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")
        super().end_headers()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Makes the page of a run, on the play by its name; returns the run and its page's folder."""
    needed(standalone.WASM.is_file(), "needs onnxruntime-web: make .venv/vendored")

    def export(form, **keys):
        folder = tmp_path_factory.mktemp("exported")
        text = written(folder / "play.txt", play(20_000))
        trained = small_run(folder / "run", text, training__max_steps=20, **keys)
        trained.run.save_corpus("play", trained.run.corpus()["sha256"])
        assert main([str(trained.run.path), "--to", form, str(folder / "page")]) == 0
        return load_trained(str(folder / "run")), folder / "page"

    return export


@pytest.fixture(scope="module")
def of_characters(exported):
    return exported("page", model__ngrams=2, data__extra_characters=grammar().alphabet)


@pytest.fixture
def open_page(page):
    """Opens a folder from a web server."""
    servers = []

    def opened(folder, host=SimpleHTTPRequestHandler):
        handler = partial(host, directory=folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_selector("text=/blanks?, answered/")
        return page

    yield opened
    for server in servers:
        server.shutdown()


def same(ours, theirs):
    """Whether two answers have the same blanks, with probabilities that agree to 1e-4."""
    assert ours["offsets"] == theirs["offsets"]
    for one, other in zip(ours["candidates"], theirs["candidates"], strict=True):
        other = dict(other)
        assert all(other.get(name, 0) == pytest.approx(p, abs=1e-4) for name, p in one)
        assert sum(p for _, p in one) == pytest.approx(1)
    return True


def test_its_probabilities_are_those_of_the_run(of_characters, open_page):
    trained, folder = of_characters
    opened = open_page(folder)
    long = play(300).replace("s", "_")  # of several windows

    for text in (HIDDEN, "é" + HIDDEN, "_", long):
        assert same(opened.evaluate(ASK, [text, False]), answer(trained, text, top=64))

    assert same(
        opened.evaluate(ASK, [HIDDEN, True]),
        answer(trained, HIDDEN, top=64, exact=True),
    )
    reason = opened.evaluate(f"args => ({ASK})(args).catch(String)", ["zzzz_", True])

    assert "the grammar cannot generate this text (character 2 is impossible)" in reason


def test_it_shows_what_the_model_and_the_grammar_expect(of_characters, open_page, axe):
    opened = open_page(of_characters[1])
    opened.fill("#text", SENTENCE)
    opened.wait_for_selector(".bars .exact")
    exact = opened.locator(".bars tr:has(th:text-is('a')) small").inner_text()

    assert exact.strip() == "100.0%"  # r_nts can only be rants

    for width in (360, 1440):
        opened.set_viewport_size({"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") == width
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            assert axe() == [], (width, scheme)

    opened.click("text=Hide all")
    opened.wait_for_selector("text=26 blanks, answered")
    opened.click("text=Fill all at once")
    opened.wait_for_selector("text=0 blanks, answered")

    assert opened.locator(".sheet .filled, .sheet .right, .sheet .wrong").count() == 26
    assert opened.outside == []
    assert opened.context.cookies() == []


@pytest.mark.slow
def test_quantized_bytes_are_close_and_the_page_says_how_close(exported, open_page):
    trained, folder = exported("page-int8", data__tokens="bytes")
    opened = open_page(folder, Unpacking)
    ours = opened.evaluate(ASK, ["é_" + HIDDEN, False])
    theirs = answer(trained, "é_" + HIDDEN, top=64)

    assert ours["offsets"] == theirs["offsets"]
    for (_, one), (_, other) in zip(
        map(max, ours["candidates"]), map(max, theirs["candidates"]), strict=True
    ):
        assert one == pytest.approx(other, abs=0.1)
    assert "of the probability of a blank" in opened.inner_text("main")


def test_it_begins_with_the_sample_of_its_run(of_characters, open_page, tmp_path):
    folder = shutil.copytree(of_characters[1], tmp_path / "page")
    facts = json.loads((folder / "run.json").read_text())
    assert facts["example"] is None  # the play has its own
    (folder / "run.json").write_text(json.dumps(facts | {"example": "in an"}))

    assert open_page(folder).input_value("#text") == "in an"


def test_without_npms_packages_it_says_how_to_get_them(
    of_characters, tmp_path, refusal, monkeypatch
):
    run = of_characters[0].run.path
    monkeypatch.setattr(standalone, "WASM", tmp_path / "missing.wasm")

    assert "make .venv/vendored" in refusal(main, run, "--to", "page", tmp_path / "a")
    assert not (tmp_path / "a").exists()
