"""Writes a trained run, or a saved classifier, as an ONNX file, for any batch size and length."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from configs.keys import ConfigError
from trained.load import Trained, check_scores, random_ids
from trained.saved_classifier import SavedClassifier


class Scores(nn.Module):
    """Token ids `[batch, length]` and an attention mask, 0 at padding, to the scores of a run or a
    classifier."""

    def __init__(self, trained: Trained):
        super().__init__()
        self.trained = trained
        self.module = getattr(trained, "classifier", trained.model)  # owns the weights

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.trained.scores(input_ids, attention_mask.bool())


@torch.no_grad()
def export(trained: Trained, file: Path) -> None:
    """Write the model; the file's metadata has the vocabulary, and the labels of a classifier, as
    JSON.

    Raises ConfigError if PyTorch cannot export the model, and RuntimeError if onnxruntime's scores
    differ.
    """
    example = random_ids(trained, 2, min(16, trained.longest))
    sizes = {
        0: torch.export.Dim("batch"),
        1: torch.export.Dim("length", max=trained.longest),
    }
    # without torchvision, it warns of unused operators
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        # PyTorch's, about its own code and the names of the axes
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(
                Scores(trained).eval(),
                (example, torch.ones_like(example)),
                dynamo=True,
                input_names=["input_ids", "attention_mask"],
                output_names=["logits"],
                dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        architecture = trained.values["model.architecture"]
        raise ConfigError(
            f"PyTorch cannot export model.architecture={architecture} to ONNX: a model of"
            " your own needs forward(inputs, positions=None, attention_mask=None)"
        ) from error

    facts: dict[str, Any] = {"vocabulary": trained.run.vocabulary()}
    if isinstance(trained, SavedClassifier):
        facts["labels"] = trained.labels
    program.model.metadata_props.update(
        {name: json.dumps(fact) for name, fact in facts.items()}
    )
    program.save(file)
    if Path(
        f"{file}.data"
    ).exists():  # PyTorch puts weights of more than 1.5 GB into a second file
        raise ConfigError("the weights are too large for one ONNX file: 1.5 GB at most")
    session = open_session(file)

    def scores_of(ids: Tensor, mask: Tensor) -> Tensor:
        inputs = {"input_ids": ids.numpy(), "attention_mask": mask.long().numpy()}
        return torch.from_numpy(session.run(None, inputs)[0])

    check_scores(trained, scores_of)


def open_session(file: Path, n_threads: int = 0) -> Any:
    """A session of onnxruntime, by default with as many threads as cores."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = n_threads
    return onnxruntime.InferenceSession(file, settings)


def quantize(file: Path) -> None:
    """Replace a file by one whose weights have 8 bits, a quarter as large; its logits are only
    close to the run's."""
    # onnxruntime advises to optimize the graph first
    logging.getLogger().setLevel(logging.ERROR)
    small = file.with_name(f"small-{file.name}")
    quantize_dynamic(file, small, weight_type=QuantType.QInt8)
    small.replace(file)
