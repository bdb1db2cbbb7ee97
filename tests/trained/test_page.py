import os
from dataclasses import replace

import pytest

from board import standalone
from export import main, print_sizes
from tests.conftest import needed
from trained.page import example


@pytest.mark.parametrize("trained", ["bpe"], indirect=True)
def test_a_run_on_subwords_cannot_become_a_page(trained, tmp_path, refusal):
    needed(standalone.WASM.is_file(), "needs onnxruntime-web: make .venv/vendored")
    line = refusal(main, trained.run.path, "--to", "page", tmp_path / "page")

    assert "a page needs characters or bytes" in line
    assert list(tmp_path.glob("*page*")) == []


def test_a_page_begins_with_a_sample_of_the_runs_text(plain, sentences):
    begin = example(plain)

    assert begin
    assert begin in sentences
    moved = replace(plain, values=plain.values | {"data.corpus": "missing.txt"})
    assert example(moved) is None


@pytest.mark.parametrize("is_quantized", [False, True])
@pytest.mark.parametrize("megabytes", [99, 101])
def test_weights_that_github_refuses_are_named(
    tmp_path, capsys, megabytes, is_quantized
):
    for name in ("weights.onnx.gz", "onnxruntime.wasm.gz"):
        (tmp_path / name).touch()
    os.truncate(tmp_path / "weights.onnx.gz", megabytes * 1_000_000)
    print_sizes(tmp_path, is_quantized)

    printed = capsys.readouterr().out
    assert ("above GitHub's 100 MB" in printed) == (megabytes > 100)
    assert ("page-int8" in printed) == (megabytes > 100 and not is_quantized)
