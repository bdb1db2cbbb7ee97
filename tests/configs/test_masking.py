"""Masking through the config tree: the training part only, static masks, and a strategy of one's
own."""

import pytest
import torch

from configs.keys import ConfigError
from configs.strategies import STRATEGY_NAMES
from data.masking.strategies import STRATEGIES
from tests.conftest import check_resumes, configs_for, one_line, written
from tests.data.masking.helpers import Fresh

TEXT = (
    "ROMEO:\nBut soft, what light breaks?\n\nJULIET:\nO Romeo, good Romeo! I hear old Friar John.\n\n"
    * 30
)
# no names, other word pairs
OTHER = "what romeo breaks, hear friar romeo. light good soft old\n\n" * 30
MIXTURE = [{"until": 1.0, **dict.fromkeys(STRATEGIES, 1)}]


def masking_for(corpus, **keys):
    return configs_for(
        corpus, **{f"masking__{key}": value for key, value in keys.items()}
    )


def test_the_names_of_strategies_are_those_that_exist():
    assert list(STRATEGY_NAMES) == list(STRATEGIES)


@pytest.mark.parametrize("name", [*STRATEGIES, "mixture"])
def test_the_validation_text_changes_nothing_that_a_strategy_computes(tmp_path, name):
    split = int(len(TEXT) * 0.9)
    keys = {"strategy": name, "random_tokens": "unigram"}
    if name == "mixture":
        keys["mixture"] = MIXTURE

    drawn = []
    for part in (TEXT[split:], OTHER[: len(TEXT) - split]):
        path = written(tmp_path / "corpus.txt", TEXT[:split] + part)
        configs = masking_for(path, **keys)

        assert configs.data.vocabulary.characters == sorted(set(TEXT))

        masker = configs.masking.strategy
        offsets = torch.arange(split)[None]
        segments = []
        if name != "random":
            generator = torch.Generator().manual_seed(0)
            segments += masker.segmenter(offsets, generator, 0.0)
        batch = masker(configs.data.training_ids[offsets], offsets, 0.3)
        drawn.append([*segments, *batch[:3]])

    assert all(torch.equal(first, second) for first, second in zip(*drawn, strict=True))


@pytest.fixture
def fresh(tmp_path):
    """A strategy in a file of the user."""
    content = "from tests.data.masking.helpers import Fresh\n\ndef fresh(text):\n    return Fresh(len(text))\n"
    return f"{written(tmp_path / 'own.py', content)}:fresh"


def test_static_masks_are_drawn_once(corpus_file):
    configs = masking_for(corpus_file, strategy="whole_word", masks="static")
    assert configs.masking.strategy.static_draws is not None


LABML = "masking.strategy=labml_nn supports"


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("span", "masks", "static", "use dynamic"),
        ("adaptive", "masks", "static", "use dynamic"),
        ("fresh", "masks", "static", "use dynamic"),
        ("labml_nn", "masks", "static", LABML),
        ("labml_nn", "random_tokens", "unigram", LABML),
        ("labml_nn", "corrupt", "unit", LABML),
    ],
)
def test_keys_that_a_strategy_does_not_allow_are_refused(
    corpus_file, fresh, name, key, value, message
):
    strategy = fresh if name == "fresh" else name
    configs = masking_for(corpus_file, strategy=strategy, **{key: value})

    with one_line(ConfigError, f"masking.{key}={value}.*{message}"):
        _ = configs.masking.strategy


def test_a_custom_strategy_learns_and_resumes_bit_for_bit(train, fresh):
    trees = check_resumes(train, 3, masking__strategy=fresh, training__max_steps=8)
    whole, stopped, resumed = (
        configs.masking.strategy.segmenter.times_masked for configs in trees
    )

    # all masked characters of 8 steps, but for losses of 0
    assert whole.sum() > 8 * 0.9 * 512 * 0.15
    assert 0 < stopped.sum() < whole.sum()
    assert torch.equal(resumed, whole)


def test_a_custom_strategy_moves_to_another_device():
    segmenter = Fresh(9).to(torch.device("meta"))
    segmenter.observe(torch.tensor([1, 2], device="meta"), torch.ones(2, device="meta"))

    assert segmenter.times_masked.device.type == "meta"

    _, weights = segmenter(torch.arange(4, device="meta")[None], torch.Generator(), 0.0)
    assert weights.device.type == "meta"


def test_a_custom_strategy_may_be_in_a_mixture(corpus_file, fresh):
    rows = [{"until": 1.0, fresh: 1, "random": 1}]
    masker = masking_for(corpus_file, strategy="mixture", mixture=rows).masking.strategy
    masker.segmenter.observe(torch.tensor([3]), torch.tensor([1.0]))

    assert masker.state_dict()["segmenter"][fresh]["times_masked"][3] == 1
