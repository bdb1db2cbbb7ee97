"""A stand-in for CUDA graphs on machines without CUDA: records operations and repeats them on the
same tensors."""

from contextlib import contextmanager
from typing import ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """Records what runs inside `recorded`. Like a CUDA graph, it leaves every tensor unchanged
    while it records; a replay uses the Python numbers of the recording, and the tensors as they are
    at the time of the replay."""

    pools: ClassVar[list[object]] = []  # of all recordings

    def __init__(self):
        super().__init__()
        self.operations = []
        self._before = []
        self._generators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        assert func is not torch.ops.aten._local_scalar_dense.default, (
            "a number was read back from the device"
        )

        named = {
            argument.name: value
            for argument, value in zip(func._schema.arguments, args, strict=False)
        } | kwargs

        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._before += [
                    (tensor, tensor.clone())
                    for tensor in tree_leaves(named.get(argument.name))
                ]

        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result

    @contextmanager
    def recorded(self, *, pool, capture_error_mode):
        """In CUDA's default mode, whatever another thread does with CUDA may end the recording."""
        assert capture_error_mode == "thread_local"

        self._pool = pool or object()
        self.pools.append(self._pool)

        states = [generator.get_state() for generator in self._generators]

        with self:
            yield

        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)
        with torch.no_grad():
            for tensor, before in reversed(self._before):
                tensor.copy_(before)

    def register_generator_state(self, generator):
        """A recording draws no numbers."""
        self._generators.append(generator)

    def pool(self):
        return self._pool

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, result in self.operations:
                for static, new in zip(
                    tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True
                ):
                    if (
                        isinstance(static, torch.Tensor)
                        and static.data_ptr() != new.data_ptr()
                    ):
                        static.copy_(new)
