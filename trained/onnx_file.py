"""Writes a trained run as an ONNX file, for any batch size and length."""

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from configs.keys import ConfigError
from trained.load import Trained, check_logits, random_ids
from trained.saved_classifier import SavedClassifier, check_not_of_pairs, check_scores


class Logits(nn.Module):
    """Token ids `[batch, length]` and an attention mask, 0 at padding, to logits `[batch, length, n_tokens]`."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask=attention_mask.bool()).view(*input_ids.shape, -1)


class Scores(nn.Module):
    """The same to the scores of a classifier, `[batch, n_labels]` or `[batch, length, n_labels]`."""

    def __init__(self, classifier: nn.Module):
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.classifier(input_ids, attention_mask.bool())


def export(trained: Trained, file: Path) -> None:
    """Write the model; the file's metadata has the vocabulary, as JSON.

    Raises ConfigError if PyTorch cannot export the model, and RuntimeError if onnxruntime's logits differ.
    """
    outputs_of = write(Logits(trained.model), trained, file, {})
    check_logits(trained, outputs_of, [(1, 1), (7, 33), (1, trained.longest)])


def export_classifier(saved: SavedClassifier, file: Path) -> None:
    """Write a saved classifier; the metadata has the vocabulary and the labels. Raises as `export`."""
    check_not_of_pairs(saved)
    check_scores(saved, write(Scores(saved.classifier), saved.trained, file, {"labels": json.dumps(saved.labels)}))


@torch.no_grad()
def write(
    module: nn.Module, trained: Trained, file: Path, facts: Mapping[str, str]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Write a function of token ids and an attention mask; returns what onnxruntime makes of the file."""
    example = random_ids(trained, 2, min(16, trained.longest))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=trained.longest)}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # without torchvision, it warns of unused operators
    try:
        with warnings.catch_warnings(action="ignore"):  # PyTorch's, about its own code and the names of the axes
            program: Any = torch.onnx.export(
                module.eval(),
                (example, torch.ones_like(example)),
                dynamo=True,
                input_names=["input_ids", "attention_mask"],
                output_names=["logits"],
                dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        architecture = trained.values["model.architecture"]
        raise ConfigError(f"PyTorch cannot export model.architecture={architecture} to ONNX") from error
    program.model.metadata_props.update({"vocabulary": json.dumps(trained.run.vocabulary()), **facts})
    program.save(file)
    if Path(f"{file}.data").exists():  # PyTorch puts weights of more than 1.5 GB into a second file
        raise ConfigError("the weights are too large for one ONNX file: 1.5 GB at most")
    session = onnxruntime.InferenceSession(file)

    def outputs_of(ids: Tensor, mask: Tensor) -> Tensor:
        inputs = {"input_ids": ids.numpy(), "attention_mask": mask.long().numpy()}
        return torch.from_numpy(session.run(None, inputs)[0])

    return outputs_of


def quantize(file: Path) -> None:
    """Replace a file by one whose weights have 8 bits, a quarter as large; its logits are only close to the run's."""
    logging.getLogger().setLevel(logging.ERROR)  # onnxruntime advises to optimize the graph first
    small = file.with_name(f"small-{file.name}")
    quantize_dynamic(file, small, weight_type=QuantType.QInt8)
    small.replace(file)
