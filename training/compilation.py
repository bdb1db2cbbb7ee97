"""Prepares training steps: compiles them for each shape, and has them recorded as CUDA graphs."""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from data import corpus
from runs.files import filling
from training.objective import masked_loss
from training.recording import RecordedUpdate, can_record
from training.schedule import Stage
from training.step import TrainingStep

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # names the folder in which PyTorch keeps compiled code
HEADERS = """\
#include <torch/csrc/inductor/cpp_prefix.h>
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sstream>
#include <cstdlib>
#include <cerrno>
"""  # of generated kernels and their Python bindings


class Compilation:
    """Compiles a training step for each shape and records it; falls back to eager steps if that does not work."""

    def __init__(self, step: TrainingStep, *, is_wanted: bool = True, cuda_graph: bool = True):
        self.step = step
        self.is_wanted = is_wanted
        self.cuda_graph = cuda_graph
        self.recorded: RecordedUpdate | None = None
        self.compiled: set[tuple[int, float]] = set()  # shapes of stages; empty if nothing is compiled

    def is_ready(self, stage: Stage) -> bool:
        """Whether the next step of this stage needs neither compiling nor recording first."""
        return self._is_compiled(stage) and not (self.recorded and self.recorded.is_due)

    def prepare(self, stage: Stage, report: Callable[[str], None]) -> None:
        """Compile or record, whichever the next step of this stage needs. Training goes on if it fails."""
        if not self._is_compiled(stage):
            self.compile([stage], report)
            return
        assert self.recorded is not None
        try:
            self.recorded.record(stage)
        except Exception as error:  # training can do without anything that PyTorch cannot record
            self.cuda_graph, self.recorded, self.step.run_update = False, None, self.step.update
            report(f"training without CUDA graphs: {_first_line(error.__context__ or error)}")

    def compile(self, stages: Sequence[Stage], report: Callable[[str], None]) -> None:
        """Compile for the shapes of all stages, if that is wanted. Training goes on if it fails.

        Weights, optimizers and RNG states are unchanged afterwards.
        """
        if not self.is_wanted:
            return
        began = time.monotonic()
        report("compiling the training step: half a minute or more (training.compile=false skips this)")
        shapes = {stage.shape: stage for stage in stages}
        # One compilation per shape is intended, not a sign of trouble.
        limit = max(torch._dynamo.config.recompile_limit, 2 * len(self.compiled | set(shapes)))
        torch._dynamo.config.recompile_limit = limit
        self.step.loss_function = torch.compile(masked_loss, dynamic=False)
        try:
            with _kept_code(report), _one_file_per_graph(), self.step.without_side_effects():
                for stage in shapes.values():
                    batch = self.step.draw(stage)[0]
                    self.step.backward(batch, torch.ones_like(self.step.skipped_in_a_row))
        except Exception as error:  # training can do without anything that a missing or broken compiler raises
            self.step.loss_function, self.step.run_update = masked_loss, self.step.update
            self.compiled, self.recorded = set(), None
            # torch.compile wraps the error of its backend in one whose first line gives no reason.
            report(f"training without torch.compile: {_first_line(getattr(error, 'inner_exception', error))}")
            return
        self.compiled |= set(shapes)
        report(f"compiled for {len(shapes)} shapes in {time.monotonic() - began:.0f} s")
        if self.cuda_graph and self.recorded is None and self.step.device.type == "cuda" and can_record(self.step):
            self.recorded = self.step.run_update = RecordedUpdate(self.step)

    def _is_compiled(self, stage: Stage) -> bool:
        return not self.compiled or stage.shape in self.compiled


@contextmanager
def _kept_code(report: Callable[[str], None]) -> Iterator[None]:
    """Keeps compiled code beside the corpus between runs, unless the environment names another folder."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # the import takes seconds

    folder = (corpus.CACHE / "compiled").resolve()
    with ExitStack() as stack:
        if os.environ.get(CACHE_VARIABLE, default_cache_dir()) in (default_cache_dir(), str(folder)):
            try:
                stack.enter_context(filling(folder, report))
                os.environ[CACHE_VARIABLE] = str(folder)
            except OSError:  # the cache cannot be written
                os.environ[CACHE_VARIABLE] = default_cache_dir()
        yield


@contextmanager
def _one_file_per_graph() -> Iterator[None]:
    """Has PyTorch compile all C++ kernels of a graph together, which takes half as long.

    PyTorch starts the C++ compiler for each kernel. The compiler spends nearly all of its time on PyTorch's headers and
    on linking. Precompiling the headers takes as long as it saves for six graphs, and leaves 150 MB in the temporary
    folder each time. PyTorch's test whether the compiler knows the processor's vector instructions takes 5 s; without
    the test, compilation fails if it does not.
    """
    from torch._inductor import config  # the import takes seconds
    from torch._inductor.async_compile import AsyncCompile

    with (
        patch.object(AsyncCompile, "cpp_pybinding", _collect),
        patch.object(AsyncCompile, "wait", _compile_collected(AsyncCompile.wait)),
        config.patch({"cpp_cache_precompile_headers": False, "cpp.vec_isa_ok": True}),
    ):
        yield


class _Kernel(NamedTuple):
    name: str
    source: str  # with its Python binding


def _collect(graph: Any, argument_types: Sequence[str], source: str) -> _Kernel:
    """Takes the place of `AsyncCompile.cpp_pybinding`, which compiles a kernel. `graph` is the `AsyncCompile`."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    graph.n_kernels = getattr(graph, "n_kernels", 0) + 1
    name = "kernel" if graph.n_kernels == 1 else f"kernel{graph.n_kernels}"  # PyTorch's loader looks for `kernel`
    types = (argument_type.replace("const ", "") for argument_type in argument_types)
    arguments = ", ".join(f"parse_arg<{argument_type}>(args, {n})" for n, argument_type in enumerate(types))
    binding = CppPythonBindingsCodeCache.suffix_template.format(
        arg_len=len(argument_types),
        entry_func=name,
        call_entry_func=f"{name}({arguments}); Py_RETURN_NONE;",
        extra_parse_arg="",
    )
    return _Kernel(name, f"namespace {name}_ {{\n{source.replace(' kernel(', f' {name}(', 1)}{binding}}}\n")


def _compile_collected(wait: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any, dict[str, Any]], None]:
    """Extends `AsyncCompile.wait`, which replaces the futures among a graph's variables by compiled kernels."""

    def wait_and_compile(graph: Any, variables: dict[str, Any]) -> None:
        from torch._inductor.codecache import CppPythonBindingsCodeCache

        wait(graph, variables)
        kernels = {variable: kernel for variable, kernel in variables.items() if isinstance(kernel, _Kernel)}
        if not kernels:
            return
        program = CppPythonBindingsCodeCache.load(HEADERS + "".join(kernel.source for kernel in kernels.values()))
        for variable, kernel in kernels.items():
            spec = importlib.util.spec_from_file_location(kernel.name, program.__file__)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            variables[variable] = getattr(module, kernel.name)

    return wait_and_compile


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
