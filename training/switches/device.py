"""Switches of PyTorch for a device: denormal numbers, attention on CUDA, threads."""

import logging
import warnings

import torch

# Warnings about what is intended: graphs are recorded after eager steps, and float32 is exact.
INTENDED = (
    "This instance was constructed with capturable=True",
    "TensorFloat32 tensor cores for float32 matrix",
    r"\s*Online softmax is disabled",  # in PyTorch 2.11, because a reduction is split
)


def set_for_device(device: torch.device) -> None:
    """Set what models on a device need. Float32 stays exact: TF32 is off by default."""
    # Processors are slow with denormal numbers, of which sharp attention has many.
    torch.set_flush_denormal(True)
    # Sparse gradients of tables are right by construction. PyTorch 2.11 warns of no choice.
    torch.sparse.check_sparse_tensor_invariants.disable()
    if device.type == "cpu":
        # Inductor warns where a CUDA compiler is installed without a GPU.
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    if device.type == "cuda":
        # The gradients of cuDNN's attention can differ from run to run.
        torch.backends.cuda.enable_cudnn_sdp(False)
        for message in INTENDED:
            warnings.filterwarnings("ignore", message=message)


def set_threads(n_threads: int) -> None:
    """Compute with this number of threads; 0: with PyTorch's own."""
    if n_threads:
        torch.set_num_threads(n_threads)
