"""PyTorch's compiler fuses what lies between the matrix products of a layer on CUDA."""

import json
import subprocess
import sys

import pytest
import torch

from runs.files import ROOT

pytest.importorskip("triton")


def n_with(names, part):
    return sum(part in name for name in names)


@pytest.mark.skipif(torch.__version__.startswith("2.11"), reason="another compiler")
@pytest.mark.slow
def test_all_between_the_products_of_a_layer_is_fused():
    """With dropout. Four kernels are copies of weights in bfloat16, as many copies of gradients."""
    command = [sys.executable, "-m", "tests.triton_code", "0.1"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True)
    forward, backward = json.loads(printed.splitlines()[-1]).values()

    assert len(forward) <= 10
    assert n_with(forward, "layer_norm") == 2
    assert n_with(forward, "neg") == 1  # rotary positions, of queries and keys
    assert n_with(forward, "gelu_mul") == 1
    assert n_with(forward, "add_native_dropout") == 2  # with the residual stream

    assert len(backward) <= 10
    assert n_with(backward, "neg") == 1
    assert n_with(backward, "gelu_backward") == 1
    assert not n_with(backward, "clone")
