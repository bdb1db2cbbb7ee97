import re

import pytest

from configs.command_line import SETTINGS, presets
from data.masking.strategies import STRATEGIES
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http|#)([^)]+)\)", README))
def test_what_the_readme_shows_is_there(link):
    assert (ROOT / link).exists()


def test_every_strategy_and_preset_is_in_the_readme():
    for name in [*STRATEGIES, "mixture", *presets()]:
        assert f"`{name}`" in README


# model.d_model=256 and `data.corpus`; not configs/model.py, nor python -m data.masking.show_masks.
KEYS = re.findall(
    r"(?<![\w/.])(?<!-m )((?:model|data|masking|training|objective|checkpoint|sample)\.[a-z_]+)\b", README
)


@pytest.mark.parametrize("key", sorted(set(KEYS)))
def test_every_key_of_the_readme_exists(key):
    assert key in SETTINGS
