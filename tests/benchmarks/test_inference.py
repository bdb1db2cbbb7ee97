import json
from argparse import Namespace

from benchmarks import inference
from tests.trained.conftest import small_run


def test_every_shape_is_timed_in_both_ways(tmp_path, text_file, monkeypatch):
    keys = {"training__max_steps": 1, "model__n_layers": 1}
    trained = small_run(tmp_path / "run", text_file, **keys)
    monkeypatch.setattr(inference, "SHAPES", ((1, 8), (2, 16)))
    monkeypatch.setattr(inference, "CHARS", 64)

    options = Namespace(run=str(trained.run.path), repeats=2)
    inference.main(options, tmp_path / "result")
    turns = json.loads((tmp_path / "result.json").read_text())["turns"]

    assert list(turns) == ["1 x 8", "2 x 16"]

    for candidates in turns.values():
        assert list(candidates) == ["PyTorch", "onnxruntime"]
        for measured in candidates.values():
            assert len(measured) == 2
            assert measured[0]["passes per second"] > 0
