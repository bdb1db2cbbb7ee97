"""What PyTorch says about the devices of a machine. A CUDA device that is simulated takes no step."""

import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from configs import devices
from configs.acceleration import cuda_graphs
from configs.command_line.command import parse
from tests.conftest import configs_for
from training.switches import device as switches

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)"
OLD_DRIVER = (
    f"CUDA initialization: {TOO_OLD}. Please update your GPU driver by downloading"
)


def test_a_driver_that_is_too_old_is_the_reason_for_training_on_the_cpu(
    monkeypatch, recwarn
):
    monkeypatch.setattr(
        torch.cuda,
        "is_available",
        lambda: bool(warnings.warn(OLD_DRIVER, stacklevel=1)),
    )
    monkeypatch.setattr("configs.devices.best_device", lambda: "cpu")
    reason = f"found no CUDA device; {TOO_OLD}"

    assert parse([]).source == f"preset quick: {reason} (--preset chooses another)"
    assert not recwarn.list


def test_attention_is_repeatable_on_cuda_and_warnings_about_what_is_intended_are_left_out(
    monkeypatch,
):
    torch.backends.cuda.enable_cudnn_sdp(True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices.available_device("auto") == "cuda"

        switches.set_for_device(torch.device("cuda"))
        # importing the latter takes seconds
        modules = ("torch.optim.optimizer", "torch._inductor.compile_fx")
        sources = "".join(Path(find_spec(name).origin).read_text() for name in modules)
        # PyTorch 2.11 has it
        sources += '"\nOnline softmax is disabled on the fly since Inductor decides to"'
        for message in switches.INTENDED:
            texts = re.findall(r'"(\n?.*)"', sources)
            (text,) = {text for text in texts if re.match(message, text)}
            warnings.warn(text, stacklevel=1)

        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)

    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_cuda_compiler_without_a_gpu_is_no_reason_to_warn(monkeypatch, caplog):
    monkeypatch.setenv("CUDA_HOME", "/usr")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    switches.set_for_device(torch.device("cpu"))

    assert cpp_extension._find_cuda_home() == "/usr"
    assert not caplog.records


def test_denormal_numbers_become_zeros(corpus_file):
    tiny = torch.full((4,), 1e-38)
    assert (tiny * 1e-3 > 0).all()
    assert configs_for(corpus_file).torch_device == torch.device("cpu")
    assert (tiny * 1e-3 == 0).all()


def test_graphs_are_recorded_of_steps_that_are_not_compiled(corpus_file):
    configs = configs_for(corpus_file, training__compile=False)
    configs.update = configs_for(corpus_file, training__compile=False).update
    configs.torch_device = torch.device("cuda")

    assert cuda_graphs(configs) is not None


@pytest.mark.parametrize(
    ("has_bfloat16", "d_model", "precision", "is_bfloat16"),
    [
        (True, 128, "auto", True),
        (True, 64, "auto", False),
        (False, 128, "auto", False),
        (True, 128, "float32", False),
        (False, 64, "bfloat16", True),
    ],
)
def test_long_vectors_are_computed_in_bfloat16_on_cpus_that_have_it(
    corpus_file, monkeypatch, has_bfloat16, d_model, precision, is_bfloat16
):
    monkeypatch.setattr("training.muon.CPU_HAS_BFLOAT16", has_bfloat16)
    configs = configs_for(
        corpus_file, model__d_model=d_model, training__precision=precision
    )

    assert configs.training.autocast == is_bfloat16
