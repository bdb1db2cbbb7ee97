import argparse

import pytest

from benchmarks.machine import results_name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "ladder"),
        (["--seeds", "3", "--seconds", "90"], "ladder"),
        (["--seeds", "1"], "ladder-seeds-1"),
        (["--begin", "more masks at first", "--seconds", "60"], "ladder-seconds-60-begin-more-masks-at-first"),
        (["--quick"], "ladder-quick"),
    ],
)
def test_what_is_not_measured_in_full_has_files_of_its_own(words, name):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--begin", default="annotated")
    parser.add_argument("--quick", action="store_true")
    assert results_name("ladder", parser, parser.parse_args(words)) == name
