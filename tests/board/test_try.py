"""The page /try in a real browser, with a run that was trained for a moment."""

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from board import predictors
from data.play.grammar import grammar, play
from runs.delivery import DeliveryError, RefusedError, ask
from runs.errors import InputError
from tests.conftest import until, written

COUNT_BLANKS = """() => {  // whenever the text is drawn
  const sheet = document.querySelector('.sheet');
  const count = () => drawn.push(sheet.querySelectorAll('[aria-pressed=true]').length);
  window.drawn = [];
  new MutationObserver(count).observe(sheet, { childList: true });
}"""


def test_a_text_is_hidden_read_and_filled(
    page, axe, shared_dashboard, make_run, train, tmp_path
):
    text = written(tmp_path / "play.txt", play(20_000))
    opened = page

    def trained(**keys):
        run = make_run()
        folder = tmp_path / run.path.name
        train(data__corpus=text, training__max_steps=2, folder=folder, **keys)
        shutil.copytree(folder, run.path, dirs_exist_ok=True)
        run.save_corpus("play", "0" * 64)
        return shared_dashboard.receive(run).run

    run = trained(data__extra_characters=grammar().alphabet)
    of_bytes = trained(data__tokens="bytes")

    address = f"{shared_dashboard.url}/api/folio/try/{run.path.name}"

    with pytest.raises(RefusedError, match="top is wrong"):
        ask(address, "POST", {"text": "_" * 4_096, "top": 1_000_000_000}, 150, {})

    opened.goto(f"{shared_dashboard.url}/try?run={run.path.name[:12]}")
    opened.fill("#text", "Ne daz r_nts iv Insk darku")
    # The first answer loads PyTorch, and may be to the text of the page.
    opened.wait_for_selector(".bars h3:text-is('character 9')", timeout=150_000)

    assert opened.locator(".bars h3").count() == 1

    # The first exact answer waits for the grammar. It knows that r_nts can only be rants.
    opened.wait_for_selector(".bars .exact", timeout=150_000)
    exact = opened.locator(".bars tr:has(th:text-is('a')) small").inner_text()

    assert exact.strip() == "100.0%"

    letters = opened.locator(".sheet button")
    letters.first.focus()
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
    opened.locator("text=Fill one by one").evaluate(
        "button => (button.click(), button.click())"
    )
    opened.wait_for_selector("text=0 blanks, answered")

    # the second character was filled after the answer to the first
    assert 1 in opened.evaluate("drawn")
    assert opened.locator(".sheet .filled, .sheet .right, .sheet .wrong").count() == 2
    assert len("".join(letters.all_text_contents())) == 26

    opened.fill("#text", "é_")  # the run does not know é
    opened.wait_for_selector("text=2 blanks, answered")
    opened.fill("#text", "a" * 5_000)
    opened.wait_for_selector("[role=alert]:has-text('this page takes 4,096')")
    opened.fill("#text", "_" * 300)  # longer than a window
    opened.wait_for_selector("text=300 blanks, answered")

    assert opened.locator("main .controls [role=status]").count() == 1

    opened.fill("#text", "Ne daz rants")

    for i, said in enumerate(("0 blanks", "1 blank")):
        opened.wait_for_selector(f"text=/^{said}, answered/")
        letters.nth(i).click()

    opened.wait_for_selector("text=2 blanks, answered")
    opened.context.set_offline(True)
    letters.nth(3).click()
    opened.wait_for_selector("[role=alert]:has-text('the dashboard does not answer')")
    opened.context.set_offline(False)
    opened.wait_for_selector("text=3 blanks, answered")

    assert opened.locator("[role=alert]").all_inner_texts() == [""]

    letters.nth(3).click()
    opened.wait_for_selector("text=2 blanks, answered")
    opened.select_option("#run", of_bytes.path.name)
    opened.wait_for_selector("text=2 blanks, answered", timeout=150_000)
    expected = ["character 1, hidden: N", "character 2, hidden: e"]

    assert opened.locator(".bars h3").all_inner_texts() == expected
    assert opened.outside == []


def test_parallel_questions_start_a_few_processes_and_others_are_told_to_wait(
    shared_dashboard, make_run
):
    runs = [
        shared_dashboard.receive(make_run()).run for _ in range(3 * predictors.MOST)
    ]
    server = psutil.Process(shared_dashboard.process.pid)

    def reason(run):
        address = f"{shared_dashboard.url}/api/folio/try/{run.path.name}"
        with pytest.raises(DeliveryError) as error:
            ask(address, "POST", {"text": "a_"}, 60, {})

        return str(error.value)

    with ThreadPoolExecutor(len(runs)) as threads:
        answers = [threads.submit(reason, run) for run in runs]
        until(
            lambda: (
                sum(answer.done() for answer in answers) == len(runs) - predictors.MOST
            )
        )

        assert all(
            "try again later" in answer.result() for answer in answers if answer.done()
        )

        # once the idle ones have ended
        until(lambda: len(server.children()) == predictors.MOST)
        for process in server.children():  # while it imports torch
            process.kill()

    reasons = [answer.result() for answer in answers]

    assert reasons.count("the model does not answer") == predictors.MOST


def predictor_of(folder, monkeypatch, *lines):
    """The predictor of a run, whose process is another program."""
    (folder / "predict.py").write_text("\n".join(["import json, os, sys", *lines]))
    monkeypatch.setattr(predictors, "ROOT", folder)
    return predictors.Predictor(str(folder))


def in_loop(task):
    """The result of a task. The loop of this thread is the browser's."""

    async def result():
        try:
            return await task
        finally:
            await asyncio.sleep(0.1)  # in which the processes that were ended end

    with ThreadPoolExecutor() as threads:
        return threads.submit(asyncio.run, result()).result(60)


def test_a_run_that_has_trained_on_answers_with_its_newest_weights(
    tmp_path, monkeypatch
):
    """Each process answers with its number, and one with older weights ends."""
    answer = (
        "for line in sys.stdin: print(json.dumps({'process': os.getpid()}), flush=True)"
    )
    predictor = predictor_of(tmp_path, monkeypatch, answer)
    predictor.weights.parent.mkdir()

    async def numbers():
        predictor.weights.write_bytes(b"first")
        first = await predictor.ask({})
        same = await predictor.ask({})
        older = predictor.process
        os.utime(predictor.weights, (0, 0))
        newer = await predictor.ask({})
        await older.wait()  # it was ended
        predictor.end()
        return [reply["process"] for reply in (first, same, newer)]

    first, same, newer = in_loop(numbers())

    assert first == same != newer


@pytest.mark.parametrize(
    ("end", "seconds", "reason"),
    [
        ("sys.stdin.read()", 0.5, "the model does not answer"),
        ("sys.exit('no such run')", 60.0, "no such run"),
    ],
)
def test_the_reason_is_given_only_by_a_process_that_has_ended(
    tmp_path, monkeypatch, end, seconds, reason
):
    predictor = predictor_of(
        tmp_path, monkeypatch, "print('a warning', file=sys.stderr, flush=True)", end
    )
    monkeypatch.setattr(predictors, "SECONDS_TO_ANSWER", seconds)

    with pytest.raises(InputError, match=reason):
        in_loop(predictor.ask({}))

    assert predictor.process is None


def test_the_process_that_was_idle_for_the_longest_time_makes_room(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(predictors, "MOST", 2)
    predictor_of(
        tmp_path, monkeypatch, "for line in sys.stdin: print('{}', flush=True)"
    )
    several = predictors.Predictors()

    async def left():
        for folder in ("a", "b", "a", "c"):
            await several.ask(folder, {})
        several.close()
        return [folder for folder, _ in several._predictors]

    assert in_loop(left()) == ["a", "c"]
