import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from board.labml_database import decode, encode
from board.store import Store

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)

TAGS = st.sampled_from(["$key", "$set", "$array", "$", "$$", "$$key"])


@given(value=PLAIN | st.dictionaries(TAGS, PLAIN, max_size=2))
def test_json_values_are_restored(value):
    assert decode(encode(value)) == value


def test_keys_sets_and_arrays_are_restored_with_their_types():
    from labml_db import Key

    value = [Key("Run:1"), {"a", "b"}, np.array([1.5, 2.0]), np.float64(3.5)]
    key, letters, array, mean = decode(encode(value))

    assert isinstance(key, Key)
    assert key == value[0]
    assert letters == value[1]

    np.testing.assert_array_equal(array, value[2], strict=True)

    assert mean == 3.5

    # rather than pickled
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        encode({"what": object()})


def test_namespaces_are_separate_and_a_deleted_key_is_gone(tmp_path):
    store = Store(tmp_path / "store.sqlite3")
    store.put("a", "key", "1")
    store.put("a", "other", "2")
    store.put("b", "key", "3")

    assert (store.get("a", "key"), store.get("b", "key")) == ("1", "3")

    store.delete("a", "key")

    assert store.get("a", "key") is None
    assert store.get("a", "other") == "2"


def test_a_transaction_that_fails_stores_nothing(tmp_path):
    store = Store(tmp_path / "store.sqlite3")
    store.put("a", "key", "1")

    def fail():
        with store.transaction():
            store.put("a", "key", "2")
            store.put("a", "other", "3")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (store.get("a", "key"), store.get("a", "other")) == ("1", None)

    with store.transaction():
        store.put("a", "other", "4")

    store.close()

    assert Store(tmp_path / "store.sqlite3").get("a", "other") == "4"
