import json
import logging

import numpy as np
import onnxruntime
import torch

from tests.trained.conftest import of_all_tokens
from trained.onnx_file import export, quantize


@of_all_tokens
def test_onnxruntime_gives_the_logits_of_the_run(trained, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("torch"), "handlers", [caplog.handler])
    export(trained, tmp_path / "model.onnx")
    assert "torchvision" not in caplog.text  # without it, PyTorch warns of operators that Folio does not use
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["vocabulary"]) == trained.run.vocabulary()
    for shape in ((1, 1), (1, 64), (7, 2), (7, 64)):
        ids = torch.randint(trained.vocabulary.n_tokens, shape, generator=torch.Generator().manual_seed(3))
        (logits,) = session.run(None, {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()})
        assert logits.shape == (*shape, trained.vocabulary.n_tokens)
        with torch.no_grad():
            assert torch.allclose(torch.from_numpy(logits).flatten(0, 1), trained.model(ids), atol=1e-4)


def test_a_file_with_weights_of_8_bits_is_smaller_and_answers_alike(with_ngrams, tmp_path):
    export(with_ngrams, file := tmp_path / "model.onnx")
    size, whole = file.stat().st_size, onnxruntime.InferenceSession(file)
    quantize(file)
    assert file.stat().st_size < 0.6 * size  # the graph itself is large here
    assert list(tmp_path.glob("*.onnx")) == [file]
    session = onnxruntime.InferenceSession(file)
    assert json.loads(session.get_modelmeta().custom_metadata_map["vocabulary"]) == with_ngrams.run.vocabulary()
    ids = torch.randint(with_ngrams.vocabulary.n_tokens, (7, 64), generator=torch.Generator().manual_seed(3)).numpy()
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    exact, close = (each.run(None, inputs)[0] for each in (whole, session))
    assert 0 < abs(close - exact).mean() < 0.1 * exact.std()
