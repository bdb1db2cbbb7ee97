import json
import logging

import onnxruntime
import pytest
import torch

from trained.onnx_file import export, quantize


@pytest.mark.parametrize("trained", ["bpe"], indirect=True)
def test_onnxruntime_gives_the_logits_of_the_run_and_with_weights_of_8_bits_similar_ones(
    trained, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("torch"), "handlers", [caplog.handler])
    export(trained, file := tmp_path / "model.onnx")
    # without it, PyTorch warns of operators that Folio does not use
    assert "torchvision" not in caplog.text
    whole = onnxruntime.InferenceSession(file)
    size = file.stat().st_size
    quantize(file)
    assert file.stat().st_size < 0.8 * size  # the graph itself is large here
    assert list(tmp_path.glob("*.onnx")) == [file]
    small = onnxruntime.InferenceSession(file)
    for session in (whole, small):
        assert (
            json.loads(session.get_modelmeta().custom_metadata_map["vocabulary"])
            == trained.run.vocabulary()
        )
    for shape in ((1, 1), (1, 64), (7, 2), (7, 64)):
        ids = torch.randint(
            trained.vocabulary.n_tokens, shape, generator=torch.Generator().manual_seed(3)
        )
        inputs = {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
        exact, close = (torch.from_numpy(each.run(None, inputs)[0]) for each in (whole, small))
        assert exact.shape == (*shape, trained.vocabulary.n_tokens)
        with torch.no_grad():
            assert torch.allclose(exact.flatten(0, 1), trained.model(ids), atol=1e-4)
        assert 0 < (close - exact).abs().mean() < 0.1 * exact.std()
