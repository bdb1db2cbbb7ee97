"""What PyTorch says about the devices of a machine. A CUDA device that is simulated takes no step."""

import inspect
import re
import warnings

import pytest
import torch
from torch._inductor import compile_fx
from torch.optim import optimizer

from configs import devices
from configs.command_line import parse
from tests.conftest import configs_for

# From PyTorch 2.11's c10/cuda/CUDAFunctions.cpp; the place in the source follows the text.
OLD_DRIVER = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU"
    " driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
    " (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:119.)"
)


def test_a_driver_that_is_too_old_is_the_reason_for_training_on_the_cpu(monkeypatch, recwarn):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(warnings.warn(OLD_DRIVER, stacklevel=1)))
    source = devices.without_cuda()
    assert source == "found no CUDA device; The NVIDIA driver on your system is too old (found version 11040)"
    assert parse(["device=cpu"]).source == "preset quick: device=cpu (--preset chooses another)"
    assert not recwarn.list


@pytest.fixture
def one_cuda_device(monkeypatch):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def test_attention_is_repeatable_on_cuda(one_cuda_device):
    torch.backends.cuda.enable_cudnn_sdp(True)
    devices.available_device("cpu")
    assert torch.backends.cuda.cudnn_sdp_enabled()
    devices.available_device("cuda:0")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_warnings_about_what_is_intended_do_not_reach_the_user(one_cuda_device):
    devices.available_device("cuda")
    sources = "".join(inspect.getsource(module) for module in (optimizer, compile_fx))
    for message in devices.INTENDED:
        (text,) = {text for text in re.findall(r'"(.*)"', sources) if text.startswith(message)}
        warnings.warn(text, stacklevel=1)
    with pytest.raises(UserWarning, match="another"):
        warnings.warn("another", stacklevel=1)


def test_graphs_are_recorded_of_steps_that_are_not_compiled(corpus_file):
    built, configs = (configs_for(corpus_file, training__compile=False) for _ in range(2))
    configs.update, configs.torch_device = built.update, torch.device("cuda")
    assert configs.cuda_graphs is not None
