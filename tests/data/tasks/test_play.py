from collections import Counter
from functools import cache
from itertools import chain

import numpy as np
import pytest

from data.play.grammar import play
from data.tasks import play as tasks
from data.tasks.task import REPORT, SELECTION, TASKS, Task

N_POOL = 40
N_TEST = 200
LONG = 60  # characters: longer texts are not repeated
NAMES = list(TASKS["play"])
written = cache(play)


def computed_once(posterior):
    """A function whose last argument is a list of texts, with a cache of its results."""
    cached = cache(posterior)

    def compute(*arguments):
        *others, texts = arguments
        return cached(*others, tuple(texts)).clone()

    return compute


@pytest.fixture(scope="module")
def of_report():
    """Returns the tasks of the play with few examples, each made once, and so are the posteriors of
    their texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "N_POOL", N_POOL)
        patch.setattr(tasks, "N_TEST", N_TEST)
        patch.setattr(tasks, "speeches", cache(tasks.speeches))
        for name in ("beliefs_about", "beliefs_about_speeches", "log_odds"):
            patch.setattr(tasks, name, computed_once(getattr(tasks, name)))

        yield cache(lambda name, use=REPORT: TASKS["play"][name](use))


@pytest.fixture(scope="module", params=NAMES)
def task(request, of_report):
    return of_report(request.param)


def long_texts(part):
    texts = chain.from_iterable(example.texts for example in part)
    return [text for text in texts if len(text) >= LONG]


def test_a_task_has_its_examples_and_labels(task):
    assert (len(task.pool), len(task.test)) == (N_POOL, N_TEST)
    assert 2 <= len(task.labels) <= 16

    in_test = Task("test", task.kind, task.test, []).labels

    assert set(in_test) <= set(task.labels)


def test_no_text_of_a_task_is_one_that_models_are_trained_on(task):
    training = written(200_000)
    long = long_texts([*task.pool, *task.test])

    assert len(long) > 20
    assert not any(text in training for text in long)


def test_the_uses_of_a_task_and_its_parts_have_texts_of_their_own(task, of_report):
    other = of_report(task.name, SELECTION)
    parts = [
        set(long_texts(part)) for part in (task.pool, task.test, other.pool, other.test)
    ]

    assert sum(map(len, parts)) == len(set.union(*parts))


def check_calibrated(posterior, is_right, ceiling):
    """The best answers are right as often as the posterior says, among the surest and among the
    others too."""
    assert posterior.mean() == pytest.approx(ceiling)

    surest = posterior > np.median(posterior)
    for part in (np.ones_like(surest), surest, ~surest):
        if part.any():
            error = np.sqrt((posterior * (1 - posterior))[part].sum()) / part.sum()
            assert (
                abs(is_right[part].mean() - posterior[part].mean()) < 3.5 * error + 1e-9
            )


def first_texts(task):
    return [example.texts[0] for example in task.test]


def test_the_ceiling_of_tagging_is_the_accuracy_of_the_exact_posterior(of_report):
    task = of_report("number")
    values = tasks.floor().values("number")
    beliefs = tasks.beliefs_about("number", first_texts(task))
    beliefs[:, values.index("none")] = 0.0
    labels = chain.from_iterable(example.label for example in task.test)
    right = []
    for label, guess in zip(labels, beliefs.argmax(1), strict=True):
        if label is not None:
            right.append(label == values[guess])

    assert np.mean(right) == pytest.approx(task.ceiling(), abs=0.003)


@pytest.mark.parametrize(
    ("name", "distinction"), [("topic", "topic"), ("play_speaker", "speaker")]
)
def test_the_exact_posterior_of_speeches_reaches_the_ceiling(
    of_report, name, distinction
):
    task = of_report(name)
    values = np.array(tasks.floor().values(distinction))
    best, guess = tasks.beliefs_about_speeches(distinction, first_texts(task)).max(1)
    labels = [example.label for example in task.test]
    check_calibrated(best.numpy(), values[guess] == labels, task.ceiling())


def test_the_exact_posterior_of_consecutive_speeches_reaches_the_ceiling(of_report):
    task = of_report("follows")
    log_odds = tasks.log_odds([example.texts for example in task.test])
    is_next = np.array([example.label == "next" for example in task.test])
    is_right = (log_odds > 0).numpy() == is_next
    check_calibrated(log_odds.abs().sigmoid().numpy(), is_right, task.ceiling())


def test_a_broken_speech_cannot_be_written_and_others_can(of_report):
    task = of_report("grammatical")
    texts = [f"\n\n____:\n{text}\n\n" for text in first_texts(task)[:100]]
    is_broken = [example.label == "broken" for example in task.test]

    assert tasks.log_probabilities(texts).isinf().tolist() == is_broken[:100]
    assert sum(is_broken) == N_TEST // 2


def test_a_draw_has_equally_many_of_each_label(of_report):
    task = of_report("topic")
    drawn = task.draw(16, seed=0)
    counts = Counter(example.label for example in drawn)

    assert counts == dict.fromkeys(task.labels, 4)
    assert drawn != task.draw(16, seed=1)
    assert drawn == task.draw(16, seed=0)
