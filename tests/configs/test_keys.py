from typing import Annotated, get_args

import pytest
from labml.configs import BaseConfigs

from configs.command_line.command import SETTINGS
from configs.keys import ConfigError, Key, Setting, keys_of, unknown_key
from tests.conftest import one_line


def setting(kind, **key):
    kinds = get_args(kind) or (kind,)
    return Setting("group.key", kinds[0], len(kinds) > 1, None, Key("", **key))


def test_every_key_has_a_line_of_text_and_a_default_that_it_allows():
    for name, each in SETTINGS.items():
        assert each.key.text, name
        assert "\n" not in each.key.text, name
        assert each.parse(each.default) == each.default, name


def test_one_line_adds_a_key():
    class Group(BaseConfigs):
        shade: Annotated[float | None, Key("how dark", low=0, high=1)] = 0.5

    class Root(BaseConfigs):
        group: Group

    (shade,) = keys_of(Root).values()

    assert shade.name == "group.shade"
    assert shade.default == 0.5
    assert shade.parse("none") is None
    assert shade.allowed == "a number from 0 to 1, or null"


READ = {
    int: {"12": 12, "1e6": 1_000_000, 7: 7},
    float: {"1e-3": 0.001, 3: 3.0},
    bool: {"true": True, "False": False},
    str: {"text": "text"},
    list: {"[{until: 1.0, seq_len: 64}]": [{"until": 1.0, "seq_len": 64}]},
    int | None: {"none": None},
    float | None: {"2.5": 2.5, None: None},
}
REFUSED = {
    int: ["twelve", "1.5", True, "inf", "none", None],
    float: ["nan", "abc", [1], "9" * 400],
    bool: ["yes please", 1],
    str: [5],
    list: ["{a: 1}", "[1"],
    int | None: ["some"],
}


@pytest.mark.parametrize(("kind", "values"), READ.items())
def test_values_are_read_as_their_type(kind, values):
    for value, expected in values.items():
        parsed = setting(kind).parse(value)
        assert parsed == expected
        assert type(parsed) is type(expected)


@pytest.mark.parametrize(("kind", "values"), REFUSED.items())
def test_values_of_the_wrong_type_are_refused_in_one_line(kind, values):
    for value in values:
        with one_line(ConfigError, r"group\.key"):
            setting(kind).parse(value)


def test_ranges():
    open_below = setting(float, above=0, high=1)
    assert open_below.parse("1") == 1.0
    for wrong in ("0", "-1", "1.01"):
        with pytest.raises(ConfigError, match="above 0 and at most 1"):
            open_below.parse(wrong)

    with pytest.raises(ConfigError, match="one of red, green"):
        setting(str, choices=("red", "green")).parse("blue")

    at_least_0 = setting(int, low=0, high=9)
    assert at_least_0.parse(0) == 0
    with pytest.raises(ConfigError, match="from 0 to 9"):
        at_least_0.parse(-1)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("model.d_modl", "did you mean model.d_model?"),
        ("d_model", "did you mean model.d_model?"),
        ("masking.prob", "did you mean masking.masking_prob?"),
        ("n_head", "did you mean model.n_heads?"),
        ("model.heads", "did you mean model.n_heads?"),
        ("training.accumulation", "--help lists every key"),
        ("", "--help lists every key"),
    ],
)
def test_an_unknown_key_gets_the_nearest_one(wrong, hint):
    assert hint in str(unknown_key(wrong, SETTINGS))
