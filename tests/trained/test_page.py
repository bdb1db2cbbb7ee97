import pytest

from board import standalone
from export import main
from tests.conftest import needed


@pytest.mark.parametrize("trained", ["bpe"], indirect=True)
def test_a_run_on_subwords_cannot_become_a_page(trained, tmp_path, refusal):
    needed(standalone.WASM.is_file(), "needs onnxruntime-web: make .venv/vendored")
    line = refusal(main, trained.run.path, "--to", "page", tmp_path / "page")

    assert "a page needs characters or bytes" in line
    assert list(tmp_path.glob("*page*")) == []
