import json
import logging

import onnxruntime
import pytest
import torch

from trained.load import check_scores, random_ids
from trained.onnx_file import export, quantize


@pytest.mark.parametrize("trained", ["bpe"], indirect=True)
@pytest.mark.slow
def test_onnxruntime_gives_the_logits_of_the_run_and_with_weights_of_8_bits_similar_ones(
    trained, tmp_path, caplog, monkeypatch
):
    """The export itself compares the logits of the file with those of the run."""
    file = tmp_path / "model.onnx"
    monkeypatch.setattr(logging.getLogger("torch"), "handlers", [caplog.handler])
    export(trained, file)

    size = file.stat().st_size

    # without it, PyTorch warns of unused operators
    assert "torchvision" not in caplog.text

    quantize(file)
    assert file.stat().st_size < 0.8 * size  # the graph itself is large here
    assert list(tmp_path.glob("*.onnx")) == [file]

    session = onnxruntime.InferenceSession(file)
    metadata = session.get_modelmeta().custom_metadata_map

    assert json.loads(metadata["vocabulary"]) == trained.run.vocabulary()

    for shape in ((1, 1), (1, 64), (7, 2), (7, 64)):
        ids = random_ids(trained, *shape)
        mask = torch.ones_like(ids)
        (logits,) = session.run(
            None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        )
        with torch.no_grad():
            exact = trained.scores(ids, mask.bool())

        assert logits.shape == exact.shape
        assert 0 < (torch.from_numpy(logits) - exact).abs().mean() < 0.1 * exact.std()


@pytest.mark.parametrize("difference", [2e-4, torch.nan])
def test_an_export_whose_scores_differ_is_refused(plain, difference):
    check_scores(plain, plain.scores)
    with pytest.raises(RuntimeError):
        check_scores(plain, lambda ids, mask: plain.scores(ids, mask) + difference)
