"""The kernels that PyTorch's compiler writes for a layer on CUDA, on a machine without CUDA.

python -m tests.triton_code [DROPOUT] prints their names as JSON. The gradients are traced on the CPU with fake
tensors, which have shapes but no values. Then all tensors move to a simulated H200, of which only
the properties exist that the compiler reads. Attention is a single operation, as its kernel on CUDA.
"""

import copy
import json
import re
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch._inductor.compile_fx as compiler
import triton
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget

from model import modern
from training.switches.compiler import set_for_compiler

CUDA = torch.device("cuda:0")
H200 = SimpleNamespace(
    name="NVIDIA H200",
    gcnArchName="",
    total_memory=141 * 10**9,
    minor=0,
    shared_memory_per_block_optin=232_448,
    L2_cache_size=60 * 2**20,
    multi_processor_count=132,
    major=9,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    warp_size=32,
)
# what the compiler asks of torch.cuda
ANSWERS = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_properties": H200,
    "get_device_capability": (9, 0),
    "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": None,
    "is_bf16_supported": True,
    "_maybe_exchange_device": 0,
    "_exchange_device": 0,
    "synchronize": None,
}


class CodeWrittenError(Exception):
    """Ends the compiler before it loads its code."""


class Codes:
    """A backend of torch.compile that keeps the code for CUDA, and executes nothing."""

    def __init__(self):
        self.codes = []

    def __call__(self, graph, inputs):
        return compiler.compile_fx(graph, inputs, inner_compile=self.compile)

    def compile(self, graph, inputs, **options):
        there = moved(graph, inputs)
        n = len(self.codes)
        try:
            with cuda(self.keep):
                compiler.compile_fx_inner(*there, **options)
        except Exception:
            if len(self.codes) == n:
                raise

        def run(arguments):
            given = list(arguments)
            arguments.clear()
            return graph(*given)

        run._boxed_call = True
        return run

    def keep(self, lowering):
        code, _ = lowering.codegen()
        self.codes.append(code.value)
        raise CodeWrittenError


def moved(graph, inputs):
    """The same graph with all tensors on CUDA, and its inputs."""
    graph = copy.deepcopy(graph)
    for node in graph.graph.nodes:
        node.args = tree_map_only(torch.device, lambda _: CUDA, node.args)
        node.kwargs = tree_map_only(torch.device, lambda _: CUDA, node.kwargs)
    graph.recompile()
    mode = next(each.fake_mode for each in inputs if isinstance(each, FakeTensor))

    def move(x):
        with mode:
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=CUDA)

    inputs = tree_map_only(torch.Tensor, move, list(inputs))
    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*inputs)
    return graph, inputs


def cuda(keep):
    stack = ExitStack()
    for name, answer in ANSWERS.items():
        value = lambda *_, answer=answer, **__: answer  # noqa: E731
        stack.enter_context(patch.object(torch.cuda, name, value))
        if hasattr(CudaInterface, name) and name != "is_available":
            stack.enter_context(patch.object(CudaInterface, name, staticmethod(value)))
    # a plain function, which becomes a method
    stack.enter_context(
        patch.object(GraphLowering, "compile_to_module", lambda self: keep(self))
    )
    return stack


@torch.library.custom_op("tests::attention", mutates_args=())
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError


@attention.register_fake
def _(q, k, v):
    batch, n_heads, seq_len, d_head = q.shape
    mixed = q.new_empty(batch, seq_len, n_heads, d_head).transpose(1, 2)
    return mixed, q.new_empty(batch, n_heads, seq_len, dtype=torch.float32)


@torch.library.custom_op("tests::attention_gradients", mutates_args=())
def attention_gradients(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mixed: torch.Tensor,
    sums: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError


@attention_gradients.register_fake
def _(gradient, q, k, v, mixed, sums):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


attention.register_autograd(
    lambda ctx, gradient, _: attention_gradients(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, *output),
)


def mix(query, key, value, *_):
    return attention(query, key, value)[0]


class LayerNorm(torch.nn.LayerNorm):
    """Computes in float32, as autocast on CUDA has it."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return F.layer_norm(
                x.float(), self.normalized_shape, self.weight, None, self.eps
            )


def kernels_of_a_layer(dropout=0.0):
    """The names of the kernels of a layer of `gpu-base`, forward and backward."""
    config.force_disable_caches = True
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_active_torch_device=lambda: CUDA,
    )
    triton.runtime.driver.set_active(driver)
    set_for_compiler(torch.device("cpu"), False)
    backend = Codes()
    with (
        patch.object(modern, "mix", mix),
        patch.object(torch.nn, "LayerNorm", LayerNorm),
        FakeTensorMode(shape_env=ShapeEnv()),
        torch.autocast("cpu", torch.bfloat16),
    ):
        layer = modern.Layer(768, 12, 1152, dropout, is_first=False)
        rotary = modern.rotary_table(512, 64)
        x = torch.zeros(64, 512, 768, requires_grad=True)
        compiled = torch.compile(layer, dynamic=True, backend=backend)
        compiled(x, rotary).backward(torch.ones_like(x))
    names = []
    for code in backend.codes:
        call = code[code.index("def call") :]
        names.append(re.findall(r"^\s+(triton_\w+)\.run\(", call, re.MULTILINE))
    forward, backward = names
    return forward, backward


if __name__ == "__main__":
    forward, backward = kernels_of_a_layer(*map(float, sys.argv[1:]))
    print(json.dumps({"forward": forward, "backward": backward}))
