import math

import pytest

from runs.schema import EVENT, MISSING, STATUS, checked
from tests.conftest import one_line


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (float, [0, -1.5, 2**60, 1e300], [math.nan, math.inf, -math.inf, 10**400, True, "1", None, MISSING, [1.0]]),
        (int, [0, -3, 2**62], [1.0, False, 2**63, 10**5_000, "1", None, MISSING]),
        (str, ["", "a"], [1, None, MISSING, ["a"]]),
        ((str, None), ["a", None], [1, MISSING]),
        ((dict, MISSING), [{}, MISSING], [None, []]),
        ([str], [[], ["a", "b"]], ["ab", ["a", 1], None]),
        ({"a": int}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "1"}, None]),
        (lambda value: value == 7, [7], [8, None]),
    ],
)
def test_a_kind_accepts_and_refuses(kind, accepted, refused):
    for value in accepted:
        content = {} if value is MISSING else {"key": value}
        assert checked(content, {"key": kind}, "file") is content
    for value in refused:
        content = {} if value is MISSING else {"key": value}
        with pytest.raises(ValueError, match=r"^file is damaged: key is "):
            checked(content, {"key": kind}, "file")


def test_the_message_is_one_short_line_that_names_the_first_wrong_key():
    with one_line(ValueError, r"^status\.json is damaged: status is wrong") as error:
        checked({"status": "line\nline" * 1_000, "details": 3}, STATUS, "status.json")
    assert len(str(error.value)) < 100
    with pytest.raises(ValueError, match=r"^events.jsonl is damaged: step is missing$"):
        checked({"event": "resumed"}, EVENT, "events.jsonl")
