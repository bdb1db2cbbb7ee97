"""Switches of PyTorch's compiler."""

import torch

# PyTorch keeps no code in which autocast is switched, unless these functions are named with a
# version of their own.
AUTOCAST = {
    "torch.amp.autocast_mode._enter_autocast": "1",
    "torch.amp.autocast_mode._exit_autocast": "1",
}


def let_compiled_code_change_threads() -> None:
    """Compiled code asks for the number of threads at each call, not when it is compiled."""
    torch._inductor.config.cpp.dynamic_threads = True


def set_for_compiling_beside_training() -> None:
    """Compile in this thread alone: a core for it, the others for the training."""
    let_compiled_code_change_threads()
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1


def set_for_compiler(device: torch.device, leaves_modules_out: bool) -> None:
    """Set what compiling a training step needs."""
    # Sizes that are equal by chance, such as a window's length and d_model, differ in the next
    # stage.
    torch.fx.experimental._config.use_duck_shape = False
    dynamo = torch._dynamo.config
    # Splitting the graph lets the exchange of gradients overlap with computing, for which a CPU
    # has no cores left.
    dynamo.optimize_ddp = device.type != "cpu"
    # One graph after a module that is left out, not several.
    dynamo.nested_graph_breaks = leaves_modules_out
    # As inputs of the code, constants such as 1e-5 would make PyTorch trace twice.
    dynamo.specialize_float = True
    # Models per process. By default, a ninth runs in eager mode.
    dynamo.recompile_limit = 64


def set_for_kept_code() -> None:
    """Set what keeping compiled code on the disk needs."""
    from torch._inductor import config  # the import takes seconds

    config.unsafe_marked_cacheable_functions = (
        config.unsafe_marked_cacheable_functions | AUTOCAST
    )
    if config.cpp.vec_isa_ok is None:
        # Saves test programs for AVX, ten seconds; those for newer instructions remain.
        config.cpp.vec_isa_ok = True
