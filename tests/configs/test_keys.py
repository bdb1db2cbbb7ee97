from typing import Annotated, get_args

import pytest
from labml.configs import BaseConfigs

from configs.command_line.command import SETTINGS
from configs.keys import ConfigError, Key, Setting, keys_of, unknown_key
from tests.conftest import one_line


def setting(kind, **key) -> Setting:
    kinds = get_args(kind) or (kind,)
    return Setting("group.key", kinds[0], len(kinds) > 1, None, Key("", **key))


def test_every_key_has_a_line_of_text_and_a_default_that_it_allows():
    for name, each in SETTINGS.items():
        assert each.key.text, name
        assert "\n" not in each.key.text, name
        assert each.parse(each.default) == each.default, name


def test_one_line_adds_a_key():
    class Group(BaseConfigs):
        shade: Annotated[
            float | None, Key("how dark", low=0, high=1, resume=True, former="group.colour")
        ] = 0.5

    class Root(BaseConfigs):
        group: Group

    found = keys_of(Root)
    assert list(found) == ["group.shade"]
    assert (found["group.shade"].default, found["group.shade"].parse("none")) == (0.5, None)
    assert found["group.shade"].allowed == "a number from 0 to 1, or null"
    for wrong in ("group.colour", "colour", "shade"):
        assert "did you mean group.shade?" in str(unknown_key(wrong, found))
    assert "--help lists every key" in str(unknown_key("", found))


@pytest.mark.parametrize(
    ("kind", "given_value", "parsed"),
    [
        (int, "12", 12), (int, "1e6", 1_000_000), (int, 7, 7), (float, "1e-3", 0.001), (float, 3, 3.0),
        (bool, "true", True), (bool, "False", False), (str, "text", "text"),
        (list, "[{until: 1.0, seq_len: 64}]", [{"until": 1.0, "seq_len": 64}]),
        (int | None, "none", None), (float | None, "2.5", 2.5), (float | None, None, None),
    ],
)  # fmt: skip
def test_values_are_read_as_their_type(kind, given_value, parsed):
    value = setting(kind).parse(given_value)
    assert value == parsed
    assert type(value) is type(parsed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "twelve"), (int, "1.5"), (int, True), (int, "inf"), (float, "nan"), (float, "abc"), (float, [1]),
        (bool, "yes please"), (bool, 1), (list, "{a: 1}"), (list, "[1"), (str, 5), (int, "none"), (int, None),
        (int | None, "some"), (float, "9" * 400),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_refused_in_one_line(kind, value):
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
    ("wrong", "right"),
    [("model.d_modl", "model.d_model"), ("d_model", "model.d_model"), ("masking.prob", "masking.masking_prob"),
     ("training.max_second", "training.max_seconds"), ("n_head", "model.n_heads"),
     ("training.accumulation", "training.grad_accum_steps"), ("accumulation", "training.grad_accum_steps")],
)  # fmt: skip
def test_an_unknown_key_gets_the_nearest_one(wrong: str, right: str):
    assert f"did you mean {right}?" in str(unknown_key(wrong, SETTINGS))
