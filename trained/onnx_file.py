"""Writes a trained run as an ONNX file, for any batch size and length."""

import json
import warnings
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

from configs.keys import ConfigError
from trained.load import Trained

TOLERANCE = 1e-4  # of logits
EXAMPLE = (2, 16)  # batch and length that the model is traced with
CHECKED = ((1, 1), (7, 33))  # and that the file is checked with


class Logits(nn.Module):
    """Token ids `[batch, length]` to logits `[batch, length, n_tokens]`."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.model(input_ids).view(*input_ids.shape, -1)


@torch.no_grad()
def export(trained: Trained, file: Path) -> None:
    """Write the model; the file's metadata has the vocabulary, as JSON.

    Raises ConfigError if PyTorch cannot export the model, and RuntimeError if onnxruntime's logits differ.
    """
    model = Logits(trained.model).eval()
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=trained.longest)}
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # PyTorch's, about its own code
            program: Any = torch.onnx.export(
                model,
                (random_ids(trained, *EXAMPLE),),
                dynamo=True,
                input_names=["input_ids"],
                output_names=["logits"],
                dynamic_shapes={"input_ids": sizes},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        architecture = trained.values["model.architecture"]
        raise ConfigError(f"PyTorch cannot export model.architecture={architecture} to ONNX") from error
    program.model.metadata_props["vocabulary"] = json.dumps(trained.run.vocabulary())
    program.save(file)
    session = onnxruntime.InferenceSession(file)
    for shape in (*CHECKED, (1, trained.longest)):
        tokens = random_ids(trained, *shape)
        (logits,) = session.run(None, {"input_ids": tokens.numpy()})
        difference = (torch.from_numpy(logits) - model(tokens)).abs().max().item()
        if difference > TOLERANCE:
            raise RuntimeError(f"onnxruntime's logits differ by {difference:.1e}: please report this")


def random_ids(trained: Trained, *shape: int) -> Tensor:
    """Random token ids of a shape."""
    return torch.randint(trained.vocabulary.n_tokens, shape, generator=torch.Generator().manual_seed(0))
