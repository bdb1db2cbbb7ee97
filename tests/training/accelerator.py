"""A stand-in for an accelerator: computes on the CPU, but its tensors cannot meet those of the CPU
or be read at will.

Its tensors report the device `meta`, which PyTorch has everywhere. Reading a value raises
`HostRead`, except in some functions; mixing devices raises `WrongDevice`.
"""

import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from runs.files import ROOT

DEVICE, CPU = torch.device("meta"), torch.device("cpu")
aten = torch.ops.aten
# Operations whose result or its size depends on values; a real accelerator waits for them.
READS = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.is_nonzero,
    aten.equal,
    aten.masked_select,
    aten._unique2,
}
READS |= {
    aten.unique_consecutive,
    aten.unique_dim,
    aten.bincount,
    aten.repeat_interleave,
}
COPIES, INDEXINGS = (
    {aten.copy_, aten._to_copy},
    {aten.index, aten.index_put, aten.index_put_},
)


class HostRead(RuntimeError):
    """The host waits for a value of the device."""


class WrongDevice(RuntimeError):
    """An operation has tensors of both devices; only numbers may be on the CPU."""


class OnDevice(torch.Tensor):
    """A tensor of the stand-in; `inner` has its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        layout = {
            "strides": inner.stride(),
            "storage_offset": inner.storage_offset(),
            "dtype": inner.dtype,
        }
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, device=DEVICE, **layout
        )
        tensor.inner = inner
        return tensor

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise HostRead(f"{func} outside of the stand-in")


class Generator(torch.Generator):
    """A generator on the stand-in."""

    device = DEVICE

    def __new__(cls):
        return super().__new__(cls, "cpu")

    def manual_seed(self, seed):
        super().manual_seed(seed)
        return self


class Creation(TorchFunctionMode):
    """`torch.tensor` would leave out the values of a tensor on `meta`."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.tensor and torch.device(kwargs.get("device") or CPU) == DEVICE:
            return func(*args, **kwargs | {"device": CPU}).to(DEVICE)

        return func(*args, **kwargs)


class Computing(TorchDispatchMode):
    def __init__(self, readers):
        super().__init__()
        self.readers = readers

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, kind = dict(kwargs or {}), func.overloadpacket
        tensors = [
            each
            for each in tree_leaves((args, kwargs))
            if isinstance(each, torch.Tensor)
        ]
        ours = {id(each.inner): each for each in tensors if isinstance(each, OnDevice)}
        may_read = self.readers is None or place() in self.readers
        is_mixed = ours and any(
            each.dim() for each in tensors if not isinstance(each, OnDevice)
        )

        if is_mixed and kind not in COPIES and not (kind is aten.index and may_read):
            raise WrongDevice(f"{func} at {place()} has tensors of both devices")

        is_read = kind in READS or (
            kind in INDEXINGS
            and any(i is not None and i.dtype == torch.bool for i in args[1])
        )
        to_host = kind in COPIES and (
            kwargs.get("device") == CPU or not isinstance(args[0], OnDevice)
        )

        if ours and (is_read or to_host) and not may_read:
            raise HostRead(f"{func} at {place()}")

        is_created = torch.device(kwargs.get("device") or CPU) == DEVICE
        kwargs |= {"device": CPU} if is_created else {}
        args, kwargs = tree_map(
            lambda each: each.inner if isinstance(each, OnDevice) else each,
            (args, kwargs),
        )
        result = func(*args, **kwargs)

        if is_created or (ours and not to_host):
            return tree_map_only(
                torch.Tensor,
                lambda each: ours[id(each)] if id(each) in ours else OnDevice(each),
                result,
            )

        return result


def place():
    """File and name of the innermost function of Folio, or of a test, that is being executed."""
    frame = sys._getframe(1)
    while frame:
        path, name = within_folio(frame.f_code.co_filename), frame.f_code.co_name
        if path and not name.startswith("<"):
            return path, name
        frame = frame.f_back

    return "", ""


@cache
def within_folio(file):
    path = Path(file)
    is_ours = (
        path.is_relative_to(ROOT)
        and path != Path(__file__)
        and ".venv" not in path.parts
    )
    return path.relative_to(ROOT).as_posix() if is_ours else ""


@contextmanager
def computing(readers=None):
    """Computes on the stand-in. Values may be read in some places only: files and functions; None:
    anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        autocast, fused = torch.autocast, optimizer._get_fused_kernels_supported_devices
        made = {DEVICE: Generator, CPU: torch.Generator}
        patch.setattr(
            torch, "Generator", lambda device=CPU: made[torch.device(device)]()
        )
        patch.setattr(
            torch,
            "autocast",
            lambda kind, *a, **k: autocast("cpu" if kind == "meta" else kind, *a, **k),
        )
        patch.setattr(
            optimizer,
            "_get_fused_kernels_supported_devices",
            lambda: [*fused(), "meta"],
        )
        patch.setattr(torch.accelerator, "synchronize", lambda device: None)
        with Creation(), Computing(readers):
            yield
