"""Compiled steps, the folder of compiled code, and training without a compiler."""

import multiprocessing
import os
import queue
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager
from torch._functorch._aot_autograd.autograd_cache import check_cacheable
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch.testing import assert_close

from configs.acceleration import (
    code_name,
    compiled_objective,
    compiler,
    thread_callback,
)
from configs.compiled_code import CACHE_VARIABLE, is_kept, kept_code
from tests.conftest import (
    Recording,
    check_same,
    configs_for,
    weights,
    written,
)
from training.callbacks.compiler import Compiler, CompilerMeanwhile
from training.callbacks.threads import ThreadChoice
from training.schedule import Stage

# The smallest model that is compiled completely: this takes half a minute once, and then its code
# is in the cache.
COMPILED = {"training__compile": True, "model__n_layers": 1, "model__ngrams": 3}


def compile_program(report=print):
    """Compile by writing a file, as PyTorch does; an existing file is taken for whole."""
    with kept_code(report):
        program = Path(os.environ[CACHE_VARIABLE]) / "program.so"
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("whole")

        if program.read_text() != "whole":
            raise ImportError("file too short")

        return program.read_text()


STUCK_IN_THE_MIDDLE = """
import os
import signal
from pathlib import Path

from data import corpus
from configs.compiled_code import CACHE_VARIABLE, kept_code

corpus.CACHE = Path(os.environ["FOLIO_CACHE"])
with kept_code(print):
    program = Path(os.environ[CACHE_VARIABLE]) / "program.so"
    program.parent.mkdir(parents=True)
    program.write_text("ha")
    print("compiling", flush=True)
    signal.pause()
"""


def test_half_a_program_of_a_killed_run_is_removed_and_a_living_run_is_waited_for(
    empty_cache, fork_server
):
    program = empty_cache / "compiled" / "program.so"
    script = written(empty_cache / "stuck.py", STUCK_IN_THE_MIDDLE)
    process = fork_server.start([str(script)])
    reports = queue.Queue()
    try:
        assert process.stdout.readline() == "compiling\n"

        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(compile_program, reports.put)
            assert reports.get(timeout=60).startswith("waiting for another process")
            assert program.read_text() == "ha"  # a living run's file is left alone

            process.kill()
            process.wait(60)
            assert result.result(60) == "whole"
    finally:
        process.kill()


def test_compiled_code_is_kept_between_runs_and_a_failed_compilation_leaves_nothing_behind(
    empty_cache,
):
    folder = empty_cache / "compiled"
    folder.mkdir()
    written(folder / "program.so", "ha")

    with pytest.raises(ImportError):
        compile_program()

    assert compile_program() == "whole"

    written(folder / "other.so", "of another model")
    compile_program()

    assert (folder / "other.so").exists()


def test_a_folder_that_the_user_chose_is_used_and_never_cleared(
    empty_cache, tmp_path_factory, monkeypatch
):
    own = tmp_path_factory.mktemp("own")
    program = written(own / "program.so", "ha")
    monkeypatch.setenv(CACHE_VARIABLE, str(own))

    for _ in range(2):
        with pytest.raises(ImportError):
            compile_program()

    assert program.read_text() == "ha"


def test_pytorchs_own_folder_is_used_if_the_cache_cannot_be_written(
    empty_cache, monkeypatch, tmp_path_factory
):
    theirs = str(tmp_path_factory.mktemp("theirs"))
    monkeypatch.setattr(
        "torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: theirs
    )
    monkeypatch.delenv(CACHE_VARIABLE)
    (empty_cache / "compiled.filling").mkdir()

    assert compile_program() == "whole"
    assert not (empty_cache / "compiled").exists()
    assert os.environ[CACHE_VARIABLE] == theirs


def test_training_goes_on_without_a_compiler(empty_cache, train):
    """The cache holds no compiled code."""
    torch._dynamo.reset()
    # PyTorch asks the compiler for its vector instructions once per process; later tests need them
    pick_vec_isa()
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        trained = train(
            training__compile=True, training__max_steps=2, model__n_layers=1
        )

    recording = trained.callbacks

    (report,) = [
        line for line in recording.lines if "training without torch.compile" in line
    ]

    assert "no-such-compiler" in report
    assert "\n" not in report
    assert recording.rows[-1]["step"] == 2


def compiled(configs, around=None):
    """Compile the step of a training; returns the last line that it reports, and the counters of
    PyTorch's compiler."""
    lines = []
    counters = torch._dynamo.utils.counters
    counters.clear()
    stages = configs.training.all_stages
    compiled_objective(configs).compile(
        configs.step, stages, lines.append, around or nullcontext()
    )
    return lines[-1], counters


@pytest.fixture
def use_backend(monkeypatch):
    """Compiles with another backend, which need not generate code."""

    def use(backend):
        torch._dynamo.reset()
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))

    return use


def gradients_of(configs, batch):
    """The gradients of a batch, and the sums of its outcome."""
    configs.network.zero_grad()
    counts = configs.update.objective.counts([batch])
    sums = configs.update.forward_backward(batch, counts).sums
    return [weight.grad.to_dense() for weight in configs.network.parameters()], sums


def check_like_eager(eager, other, stages):
    """Losses and gradients of compiled steps are those of eager ones."""
    for stage in stages:
        (batch,) = eager.step.draw(stage)
        expected, sums = gradients_of(eager, batch)
        gradients, other_sums = gradients_of(other, batch)

        assert_close(other_sums, sums, rtol=1e-5, atol=1e-8)
        assert_close(gradients, expected, rtol=1e-5, atol=1e-5)


def test_a_compiled_step_does_what_an_eager_one_does_for_windows_of_all_lengths(
    two_threads, corpus_file
):
    """In the first stage, a window is as long as d_model by chance."""
    eager = configs_for(corpus_file, **COMPILED | {"training__compile": False})
    configs = configs_for(corpus_file, **COMPILED)
    before = weights(configs)

    line, counters = compiled(configs, kept_code(print))

    assert line.startswith("compiled in ")
    # after the lookup of n-grams; nothing comes before it
    assert counters["stats"]["unique_graphs"] == 1

    counts = counters["aot_autograd"]
    assert counts["total"] == 1  # traced once
    # the next run can load it
    assert counts["autograd_cache_saved"] + counts["autograd_cache_hit"] == 1

    assert torch.equal(weights(configs), before)  # compiling trains nothing
    # and draws nothing
    assert str(configs.step.state_dict()) == str(eager.step.state_dict())

    torch.set_num_threads(1)  # a run may change their number
    stages = eager.training.all_stages
    check_like_eager(eager, configs, [*stages, Stage(1.0, 128, 0.15), *stages])

    assert counters["stats"]["unique_graphs"] == 1


def test_sizes_of_one_are_compiled_before_the_first_step(corpus_file, use_backend):
    """One window per batch, or one masked position per window. PyTorch tells such sizes apart when
    it traces a step."""
    use_backend("eager")
    rows = [
        {"until": 0.5, "seq_len": 32, "masking_prob": [0.03, 0.5]},
        {"until": 1.0, "seq_len": 64},
    ]
    keys = {
        "model__ngrams": 0,
        "training__stages": rows,
        "training__chars_per_step": 64,
    }
    configs = configs_for(corpus_file, **COMPILED | keys)
    _, counters = compiled(configs)

    assert counters["stats"]["unique_graphs"] == 3

    for stage in configs.training.all_stages:
        configs.step(stage)

    assert counters["stats"]["unique_graphs"] == 3


def test_more_models_of_a_process_are_compiled_than_pytorch_does_by_default(
    corpus_file, use_backend, monkeypatch
):
    # 8, but each takes a second
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    use_backend("eager")
    stages = [{"until": 1.0, "seq_len": 32}]
    n_graphs = []
    for d_ff in (8, 16, 24):
        configs = configs_for(
            corpus_file, **COMPILED, model__d_ff=d_ff, training__stages=stages
        )
        _, counters = compiled(configs)
        n_graphs.append(counters["stats"]["unique_graphs"])

    assert n_graphs == [1, 1, 1]


@pytest.mark.slow
def test_checkpointed_layers_and_chunks_are_part_of_the_compiled_code(
    corpus_file, use_backend, monkeypatch
):
    """The stages have different numbers of chunks; each is traced before the first step."""
    graphs = []

    def checked(graph, inputs):
        check_cacheable(graph)
        graphs.append(graph)
        return aot_eager(graph, inputs)

    use_backend(checked)
    monkeypatch.setattr("training.chunked_objective.LOGITS_AT_ONCE", 2_000)
    keys = {"model__ngrams": 0, "model__n_layers": 2, "training__compile": True}
    eager = configs_for(corpus_file, **keys | {"training__compile": False})
    configs = configs_for(corpus_file, **keys, training__activation_checkpointing=True)
    line, _ = compiled(configs)
    n_graphs = len(graphs)
    check_like_eager(eager, configs, eager.training.all_stages)

    assert line.startswith("compiled in "), line
    assert len(graphs) == n_graphs == 2
    assert "tag_activation_checkpoint" in graphs[-1].code


def test_a_lookup_with_dense_gradients_is_part_of_the_compiled_code(
    corpus_file, use_backend
):
    """As on a GPU. Sparse gradients, as on a CPU, need a graph of their own after the lookup."""
    use_backend("aot_eager")
    eager = configs_for(corpus_file, **COMPILED | {"training__compile": False})
    configs = configs_for(corpus_file, **COMPILED)
    for each in (eager, configs):
        each.update.model.encoder.ngrams.table.sparse = False

    _, counters = compiled(configs)
    check_like_eager(eager, configs, eager.training.all_stages)

    assert counters["stats"]["unique_graphs"] == 1
    # a module that is left out of the compiled code gets a `forward` of its own
    assert "forward" not in vars(configs.update.model.encoder.ngrams)


def test_code_in_bfloat16_can_be_kept(corpus_file, use_backend):
    """Attention switches autocast off, which PyTorch keeps no code of by default."""
    graphs = []

    def checked(graph, inputs):
        check_cacheable(graph)
        graphs.append(graph)
        return graph

    use_backend(checked)
    configs = configs_for(corpus_file, **COMPILED, training__precision="bfloat16")
    line, _ = compiled(configs, kept_code(print))

    assert line.startswith("compiled in "), line
    assert "_enter_autocast" in graphs[-1].code


def test_a_compiled_run_is_resumed_bit_for_bit_by_another_process(
    two_threads, train, fork_server
):
    keys = COMPILED | {"training__max_steps": 24, "training__evaluations": 3}
    keys["model__ngram_dropout"] = 0.1
    whole = train(**keys)

    assert "compiled in " in "\n".join(whole.callbacks.lines)

    begun = train(stop_after=13, **keys).run
    output = fork_server.start(
        ["experiment.py", "--resume", str(begun.path)], merged=True
    ).output()

    assert "compiled in " in output
    assert "warning" not in output

    check_same(whole.run, begun)


class Waiting(Recording):
    """Waits for a process after the third step."""

    def __init__(self, process):
        super().__init__()
        self.process = process

    def stepped(self, trainer, stage):
        if trainer.step == 3:
            self.process.join()


def test_training_begins_uncompiled_and_goes_on_compiled(
    corpus_file, two_threads, use_backend
):
    """As soon as the other process has ended. The weights are those of an uncompiled run."""
    use_backend("aot_eager")
    keys = COMPILED | {"training__max_steps": 5}
    eager = configs_for(corpus_file, **keys | {"training__compile": False})
    eager.trainer.train()

    configs = configs_for(corpus_file, **keys)
    process = multiprocessing.get_context("spawn").Process(target=int)
    waiting = Waiting(process)
    compiled = compiled_objective(configs)
    begun = CompilerMeanwhile(
        compiled, lambda report: nullcontext(), process, ThreadChoice()
    )
    configs.trainer.callbacks = [waiting, begun]
    configs.trainer.train()

    lines = [line for line in waiting.lines if "faster" not in line]
    assert lines[0].startswith("training uncompiled while another process compiles")
    assert lines[-1].startswith("compiled in ")
    assert configs.update.objective is compiled
    assert_close(weights(configs), weights(eager), rtol=1e-4, atol=1e-5)


@pytest.fixture
def free_threads():
    """Later tests compile for a fixed number of threads again."""
    with torch._inductor.config.patch({"cpp.dynamic_threads": False}):
        yield


def kind_of_compiler(configs):
    return type(compiler(configs, thread_callback(configs)))


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({}, CompilerMeanwhile),
        ({"training__max_steps": 9}, Compiler),  # repeats bit for bit
        ({"training__threads": 2}, Compiler),  # as trials do
        ({"training__max_seconds": 20.0}, Compiler),
    ],
)
def test_runs_that_follow_the_clock_begin_uncompiled(
    corpus_file, two_threads, empty_cache, free_threads, keys, kind
):
    keys = COMPILED | {"training__max_seconds": 90.0} | keys
    assert kind_of_compiler(configs_for(corpus_file, **keys)) is kind


def test_code_that_is_kept_is_loaded_before_the_first_step(
    corpus_file, two_threads, empty_cache, free_threads, monkeypatch
):
    monkeypatch.delenv(CACHE_VARIABLE)
    keys = COMPILED | {"training__max_seconds": 90.0}
    configs = configs_for(corpus_file, **keys)
    with kept_code(print, code_name(configs)):
        monkeypatch.delenv(CACHE_VARIABLE)

    assert kind_of_compiler(configs) is Compiler

    other = configs_for(corpus_file, **keys, model__d_ff=48)
    assert kind_of_compiler(other) is CompilerMeanwhile


@pytest.mark.slow
def test_another_process_compiles_what_a_run_needs(
    corpus_file, two_threads, empty_cache, free_threads, monkeypatch
):
    """The run finds the code in the folder, and later runs find its name."""
    monkeypatch.delenv(CACHE_VARIABLE)
    configs = configs_for(corpus_file, **COMPILED, training__max_seconds=90.0)
    name = code_name(configs)
    process = compiler(configs, thread_callback(configs)).process
    process.start()
    process.join()

    assert process.exitcode == 0
    assert is_kept(name)

    line, counters = compiled(configs, kept_code(print))

    assert line.startswith("compiled in ")
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1
