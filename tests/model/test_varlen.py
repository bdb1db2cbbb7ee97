"""Attention within documents by PyTorch's kernel for sequences of varying length. On a CPU, only the
kernel itself is replaced: by a loop over the documents."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from data.batch import Batch
from data.windows.packed import begins_of
from distributed.parallel import part_of
from model.documents import can_mix_within, mix_within
from tests.model.conftest import small_model
from tests.model.test_packing import IDS, N_TOKENS, NUMBERS

COLUMNS = torch.tensor([19, 0, 6, 7, 8])
POSITIONS = COLUMNS + 40 * torch.arange(len(IDS))[:, None]


def outcome(model, begins):
    """Logits and gradients."""
    model.zero_grad()
    extra = {} if begins is None else {"begins": begins}
    logits = model(IDS, POSITIONS, NUMBERS, **extra)
    is_text = NUMBERS.flatten()[POSITIONS] > 0
    logits[is_text].logsumexp(-1).square().sum().backward()
    return logits[is_text], [weight.grad for weight in model.parameters()]


def test_the_begins_of_documents_and_padding():
    documents = torch.tensor([[1, 1, 2, 0], [1, 2, 2, 2], [1, 1, 1, 1]])
    expected = [0, 2, 3, 4, 5, 8, 12, 12]
    assert begins_of(documents, 0).tolist() == expected
    assert begins_of(documents, 16).tolist() == expected + 8 * [12]


def test_it_has_the_logits_and_gradients_of_the_mask(varlen_kernel):
    model = small_model(n_tokens=N_TOKENS)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    expected = outcome(model, None)
    begins = begins_of(NUMBERS, 0)
    assert_close(outcome(model, begins), expected, rtol=1e-4, atol=1e-5)
    assert varlen_kernel.n_calls

    torch._dynamo.reset()
    model.compile(backend="aot_eager", fullgraph=True, dynamic=True)
    assert_close(outcome(model, begins), expected, rtol=1e-4, atol=1e-5)


def test_a_part_of_the_windows_has_the_documents_of_these(varlen_kernel):
    model = small_model(n_tokens=N_TOKENS)
    batch = Batch(
        IDS, POSITIONS, IDS, attention_mask=NUMBERS, begins=begins_of(NUMBERS, 0)
    )
    part = part_of(batch, slice(1, 3))
    logits = model(part.inputs, part.positions, part.attention_mask, begins=part.begins)
    expected = model(IDS, POSITIONS, NUMBERS)[1:3]

    assert part.begins.dtype == torch.int32
    assert_close(logits, expected, rtol=1e-4, atol=1e-5)


class LargestMask(TorchDispatchMode):
    """The number of elements of the largest boolean tensor."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and each.dtype == torch.bool:
                self.size = max(self.size, each.numel())
        return result


def test_no_mask_of_queries_and_keys_is_built(varlen_kernel):
    model = small_model(n_tokens=N_TOKENS)
    sizes = []
    for begins in (None, begins_of(NUMBERS, 0)):
        with LargestMask() as largest:
            model(IDS, POSITIONS, NUMBERS, begins=begins)
        sizes.append(largest.size)

    assert sizes[0] == IDS.numel() * IDS.shape[1]
    assert sizes[1] <= IDS.numel()


def test_without_the_kernel_the_mask_stays():
    assert not can_mix_within(2, 32, torch.device("cpu"))


def test_pytorch_takes_the_arguments_on_cuda():
    """As far as it can be seen without a device: types and shapes."""
    with FakeTensorMode(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # as Folio
        x = torch.ones(4, 12, 512, 64, dtype=torch.bfloat16, device="cuda:0")
        mixed = mix_within(x, x, x, torch.zeros(16, dtype=torch.int32, device="cuda:0"))

    assert mixed.shape == x.shape
    assert mixed.dtype == torch.bfloat16

    x = torch.ones(4, 12, 512, 64, dtype=torch.bfloat16, device="meta")
    x.requires_grad_()
    mix_within(
        x, x, x, torch.zeros(16, dtype=torch.int32, device="meta")
    ).sum().backward()

    assert x.grad.shape == x.shape
