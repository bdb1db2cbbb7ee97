"""A CUDA graph without CUDA: operations are noted down, and repeated on the very tensors that they were noted with."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """What it repeats finds numbers as they were when it was recorded, and tensors as they are by then; recording it
    leaves every tensor as it was. So does a CUDA graph."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Callable, tuple, Mapping[str, Any], Any]] = []
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        assert func is not torch.ops.aten._local_scalar_dense.default, "a number is read back from the device"
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._before += [(tensor, tensor.clone()) for tensor in tree_leaves(named.get(argument.name))]
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result

    @contextmanager
    def recorded(self) -> Iterator[None]:
        with self:
            yield
        with torch.no_grad():
            for tensor, before in reversed(self._before):
                tensor.copy_(before)

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, result in self.operations:
                for there, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(there, torch.Tensor) and there.data_ptr() != new.data_ptr():
                        there.copy_(new)
