"""The page /try in a real browser, with a run that was trained for a moment."""

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from board import predictors
from data.play.grammar import grammar, play
from runs.errors import InputError
from tests.board.conftest import Dashboard

COUNT_BLANKS = """() => {  // whenever the text is drawn
  const sheet = document.querySelector('.sheet');
  const count = () => drawn.push(sheet.querySelectorAll('[aria-pressed=true]').length);
  window.drawn = [];
  new MutationObserver(count).observe(sheet, { childList: true });
}"""


def test_a_text_is_hidden_read_and_filled(
    page, axe, shared_dashboard: Dashboard, make_run, train, tmp_path
):
    text, of_bytes, run, opened = tmp_path / "play.txt", make_run(), make_run(), page
    text.write_text(play(20_000), encoding="utf-8")
    keys = {
        run: {"data__extra_characters": grammar().alphabet},
        of_bytes: {"data__tokens": "bytes"},
    }
    for each, own in keys.items():
        trained = train(
            data__corpus=text, training__max_steps=2, folder=tmp_path / each.path.name, **own
        ).run
        shutil.copytree(trained.path, each.path, dirs_exist_ok=True)
        each.save_corpus("play", "0" * 64)
        shared_dashboard.receive(each)
    opened.goto(f"{shared_dashboard.url}/try?run={run.path.name[:12]}")
    opened.fill("#text", "Ne daz r_nts iv Insk darku")
    # The first answer loads PyTorch, and may be to the text of the page.
    opened.wait_for_selector(".bars h3:text-is('character 9')", timeout=150_000)
    assert opened.locator(".bars h3").count() == 1
    opened.wait_for_selector(".bars .exact")  # the grammar knows: r_nts can only be rants
    exact = opened.locator(".bars tr:has(th:text-is('a')) small").inner_text()
    assert exact.strip() == "100.0%"
    opened.locator(".sheet button").first.focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("Space")
    opened.wait_for_selector("text=2 blanks, answered")
    assert opened.locator(".bars h3").first.inner_text() == "character 2, hidden: e"
    opened.check("text=attention of the selected character")
    opened.wait_for_selector(".sheet button[style*='rgba']")
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        assert axe() == [], scheme
    opened.select_option("#order", "right")
    opened.evaluate(COUNT_BLANKS)
    opened.locator("text=Fill one by one").evaluate("button => (button.click(), button.click())")
    opened.wait_for_selector("text=0 blanks, answered")
    # the second character was filled after the answer to the first
    assert 1 in opened.evaluate("drawn")
    assert opened.locator(".sheet .filled, .sheet .right, .sheet .wrong").count() == 2
    assert len("".join(opened.locator(".sheet button").all_text_contents())) == 26
    opened.fill("#text", "é_")  # the run does not know é
    opened.wait_for_selector("text=2 blanks, answered")
    opened.fill("#text", "a" * 5_000)
    opened.wait_for_selector("[role=alert]:has-text('this page takes 4,096')")
    opened.fill("#text", "_" * 300)  # longer than a window
    opened.wait_for_selector("text=300 blanks, answered")
    assert opened.locator("main .controls [role=status]").count() == 1
    opened.fill("#text", "Ne daz rants")
    for i, said in enumerate(("0 blanks, answered", "1 blank, answered")):
        opened.wait_for_selector(f"text=/^{said}/")
        opened.locator(".sheet button").nth(i).click()
    opened.wait_for_selector("text=2 blanks, answered")
    opened.context.set_offline(True)
    opened.locator(".sheet button").nth(3).click()
    opened.wait_for_selector("[role=alert]:has-text('the dashboard does not answer')")
    opened.context.set_offline(False)
    opened.wait_for_selector("text=3 blanks, answered")
    assert opened.locator("[role=alert]").all_inner_texts() == [""]
    opened.locator(".sheet button").nth(3).click()
    opened.wait_for_selector("text=2 blanks, answered")
    opened.select_option("#run", of_bytes.path.name)
    opened.wait_for_selector("text=2 blanks, answered", timeout=150_000)
    expected = ["character 1, hidden: N", "character 2, hidden: e"]
    assert opened.locator(".bars h3").all_inner_texts() == expected
    assert opened.outside == []


def test_a_run_that_has_trained_on_answers_with_its_newest_weights(tmp_path, monkeypatch):
    """Each process answers with its number, and one with older weights ends."""
    answer = "print(json.dumps({'process': os.getpid()}), flush=True)"
    (tmp_path / "predict.py").write_text(
        f"import json, os, sys\nfor line in sys.stdin:\n    {answer}\n"
    )
    monkeypatch.setattr(predictors, "ROOT", tmp_path)
    weights = tmp_path / "checkpoints" / "best.safetensors"
    weights.parent.mkdir()
    found = predictors.Predictors()

    async def ask() -> list[int]:
        weights.write_bytes(b"first")
        first, same = [(await found.ask(str(tmp_path), {}))["process"] for _ in range(2)]
        (older,) = found._idle.values()
        os.utime(weights, (0, 0))
        newer = (await found.ask(str(tmp_path), {}))["process"]
        left = list(found._idle.values())
        found.close()
        for process in {older, *left}:
            await process.wait()  # the one with older weights was ended before
        return [first, same, newer]

    with ThreadPoolExecutor() as threads:  # this thread is the browser's
        first, same, newer = threads.submit(asyncio.run, ask()).result(60)
    assert first == same != newer


@pytest.mark.parametrize(
    ("end", "seconds", "reason"),
    [
        ("sys.stdin.read()", 2.0, "the model does not answer"),
        ("sys.exit('no such run')", 60.0, "no such run"),
    ],
)
def test_the_reason_is_given_only_by_a_process_that_has_ended(
    tmp_path, monkeypatch, end, seconds, reason
):
    (tmp_path / "predict.py").write_text(
        f"import sys\nprint('a warning', file=sys.stderr, flush=True)\n{end}\n"
    )
    monkeypatch.setattr(predictors, "ROOT", tmp_path)
    monkeypatch.setattr(predictors, "SECONDS_TO_ANSWER", seconds)
    found = predictors.Predictors()

    async def ask() -> None:
        process = found._idle["run", False, 0] = await found._start("run")
        try:
            await found.ask("run", {})
        finally:
            await process.wait()

    # this thread is the browser's
    with ThreadPoolExecutor() as threads, pytest.raises(InputError, match=reason):
        threads.submit(asyncio.run, ask()).result()
