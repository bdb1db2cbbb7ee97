from argparse import Namespace

from benchmarks import inference
from tests.trained.conftest import small_run


def test_every_shape_is_timed(tmp_path, corpus_file, monkeypatch):
    trained = small_run(tmp_path / "run", corpus_file, training__max_steps=1, model__ngrams=2)
    monkeypatch.setattr(inference, "SHAPES", ((1, 8), (2, 16)))
    monkeypatch.setattr(inference, "CHARS", 64)
    results = {}
    monkeypatch.setattr(inference, "save_results", lambda path, **content: results.update(content))
    inference.main(Namespace(run=str(trained.run.path), repeats=2), tmp_path / "result")
    assert [row["shape"] for row in results["shapes"]] == [(1, 8), (2, 16)]
    for row in results["shapes"]:
        assert min(row["pytorch_ms"], row["onnxruntime_ms"], row["ratio"]) > 0
