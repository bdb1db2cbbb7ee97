"""Compiled steps, the folder of compiled code, and training without a compiler."""

import os
import queue
import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._functorch._aot_autograd.autograd_cache import check_cacheable
from torch._inductor.cpu_vec_isa import pick_vec_isa

from configs.compiled_code import CACHE_VARIABLE, kept_code
from tests.conftest import check_same, configs_for, weights, written
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
    script = written(empty_cache / "stuck.py", STUCK_IN_THE_MIDDLE)
    process = fork_server.start([str(script)])
    results, reports = [], queue.Queue[str]()
    waiting = threading.Thread(target=lambda: results.append(compile_program(reports.put)))
    try:
        assert process.stdout.readline() == "compiling\n"
        waiting.start()
        assert reports.get(timeout=60).startswith("waiting for another process")
        # a living run's file is left alone
        assert (empty_cache / "compiled" / "program.so").read_text() == "ha"
    finally:
        process.kill()
        process.wait(60)
    waiting.join(timeout=60)
    assert results == ["whole"]


def test_compiled_code_is_kept_between_runs_and_a_failed_compilation_leaves_nothing_behind(
    empty_cache,
):
    (empty_cache / "compiled").mkdir()
    (empty_cache / "compiled" / "program.so").write_text("ha")
    with pytest.raises(ImportError):
        compile_program()
    assert compile_program() == "whole"
    (empty_cache / "compiled" / "other.so").write_text("of another model")
    compile_program()
    assert (empty_cache / "compiled" / "other.so").exists()


def test_a_folder_that_the_user_chose_is_used_and_never_cleared(
    empty_cache, tmp_path_factory, monkeypatch
):
    own = tmp_path_factory.mktemp("own")
    (own / "program.so").write_text("ha")
    monkeypatch.setenv(CACHE_VARIABLE, str(own))
    for _ in range(2):
        with pytest.raises(ImportError):
            compile_program()
    assert (own / "program.so").read_text() == "ha"


def test_pytorchs_own_folder_is_used_if_the_cache_cannot_be_written(
    empty_cache, monkeypatch, tmp_path_factory
):
    theirs = tmp_path_factory.mktemp("theirs")
    monkeypatch.setattr(
        "torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: str(theirs)
    )
    monkeypatch.delenv(CACHE_VARIABLE)
    (empty_cache / "compiled.filling").mkdir()
    assert compile_program() == "whole"
    assert not (empty_cache / "compiled").exists()
    assert os.environ[CACHE_VARIABLE] == str(theirs)


def test_training_goes_on_without_a_compiler(empty_cache, train):
    """The cache holds no compiled code."""
    torch._dynamo.reset()
    # PyTorch asks the compiler for its vector instructions once per process; later tests need them
    pick_vec_isa()
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        trained = train(training__compile=True, training__max_steps=2, model__n_layers=1)
    (report,) = [
        line for line in trained.callbacks.lines if "training without torch.compile" in line
    ]
    assert "no-such-compiler" in report
    assert "\n" not in report
    assert trained.callbacks.rows[-1]["step"] == 2


def test_a_compiler_that_fails_is_reported_with_its_reason(corpus_file, monkeypatch):
    def broken(graph, inputs):
        raise ValueError("register allocation failed\nin a long message")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    configs, lines = configs_for(corpus_file, training__compile=True), []
    configs.compiled.compile(configs.step, configs.training.all_stages, lines.append, nullcontext())
    assert lines[-1] == "training without torch.compile: register allocation failed"
    assert configs.step(configs.training.all_stages[0])["n_labels"] > 0


def check_like_eager(eager, compiled, stages):
    """Losses and gradients of compiled steps are those of eager ones."""
    for configs in (eager, compiled):
        configs.network.zero_grad()
    for stage in stages:
        (batch,) = batches = eager.step.draw(stage)
        counts = eager.step.update.objective.counts(batches)
        one, other = (
            configs.step.update.forward_backward(batch, counts).sums
            for configs in (eager, compiled)
        )
        assert torch.allclose(one["loss_sum"], other["loss_sum"], rtol=1e-5)
        assert one["n_correct"] == other["n_correct"]
    for one, other in zip(eager.network.parameters(), compiled.network.parameters(), strict=True):
        assert torch.allclose(one.grad.to_dense(), other.grad.to_dense(), atol=1e-5)


def test_a_compiled_step_does_what_an_eager_one_does_for_windows_of_all_lengths(
    two_threads, corpus_file
):
    """In the first stage, a window is as long as d_model by chance."""
    eager, compiled = (
        configs_for(corpus_file, **COMPILED | {"training__compile": on}) for on in (False, True)
    )
    before, stages = weights(compiled), eager.training.all_stages
    counts, graphs = (torch._dynamo.utils.counters[name] for name in ("aot_autograd", "stats"))
    counts.clear()
    graphs.clear()
    lines = []
    compiled.compiled.compile(compiled.step, stages, lines.append, kept_code(lines.append))
    assert lines[-1].startswith("compiled in "), lines
    assert graphs["unique_graphs"] == 1  # after the lookup of n-grams; nothing comes before it
    assert counts["total"] == 1  # traced once
    # the next run can load it
    assert counts["autograd_cache_saved"] + counts["autograd_cache_hit"] == 1
    assert torch.equal(weights(compiled), before)  # compiling trains nothing
    assert str(compiled.step.state_dict()) == str(eager.step.state_dict())  # and draws nothing
    torch.set_num_threads(1)  # a run may change their number
    check_like_eager(eager, compiled, [*stages, Stage(1.0, 128, 0.15), *stages])
    assert graphs["unique_graphs"] == 1


def test_sizes_of_one_are_compiled_before_the_first_step(corpus_file, monkeypatch):
    """One window per batch, or one masked position per window. PyTorch tells such sizes apart when
    it traces a step, so nothing that generates code is needed here."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    rows = [
        {"until": 0.5, "seq_len": 32, "masking_prob": [0.03, 0.5]},
        {"until": 1.0, "seq_len": 64},
    ]
    keys = {
        **COMPILED,
        "model__ngrams": 0,
        "training__stages": rows,
        "training__chars_per_step": 64,
    }
    configs, counts = configs_for(corpus_file, **keys), torch._dynamo.utils.counters["stats"]
    counts.clear()
    configs.compiled.compile(configs.step, configs.training.all_stages, print, nullcontext())
    assert counts["unique_graphs"] == 3
    for stage in configs.training.all_stages:
        configs.step(stage)
    assert counts["unique_graphs"] == 3


def test_more_models_of_a_process_are_compiled_than_pytorch_does_by_default(
    corpus_file, monkeypatch
):
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)  # 8, but each takes a second
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counts = torch._dynamo.utils.counters["stats"]
    counts.clear()
    stages = [{"until": 1.0, "seq_len": 32}]
    for d_ff in (8, 16, 24):
        configs = configs_for(corpus_file, **COMPILED, model__d_ff=d_ff, training__stages=stages)
        configs.compiled.compile(configs.step, configs.training.all_stages, print, nullcontext())
    assert counts["unique_graphs"] == 3  # one per model


def test_a_lookup_with_dense_gradients_is_part_of_the_compiled_code(corpus_file, monkeypatch):
    """As on a GPU. Sparse gradients, as on a CPU, need a graph of their own after the lookup."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters["stats"].clear()
    eager, compiled = (
        configs_for(corpus_file, **COMPILED | {"training__compile": on}) for on in (False, True)
    )
    for configs in (eager, compiled):
        configs.update.model.encoder.ngrams.table.sparse = False
    compiled.compiled.compile(compiled.step, compiled.training.all_stages, print, nullcontext())
    check_like_eager(eager, compiled, eager.training.all_stages)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_code_in_bfloat16_can_be_kept(corpus_file, monkeypatch):
    """Attention switches autocast off, which PyTorch keeps no code of by default."""
    graphs = []

    def checked(graph, inputs):
        check_cacheable(graph)
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=checked))
    torch._dynamo.reset()
    configs = configs_for(corpus_file, **COMPILED, training__precision="bfloat16")
    lines = []
    configs.compiled.compile(
        configs.step, configs.training.all_stages, lines.append, kept_code(lines.append)
    )
    assert lines[-1].startswith("compiled in "), lines
    assert "_enter_autocast" in graphs[-1].code


def test_a_compiled_run_is_resumed_bit_for_bit_by_another_process(two_threads, train, fork_server):
    keys = {
        **COMPILED,
        "training__max_steps": 24,
        "training__evaluations": 3,
        "model__ngram_dropout": 0.1,
    }
    whole = train(**keys)
    assert any("compiled in " in line for line in whole.callbacks.lines), whole.callbacks.lines
    begun = train(stop_after=13, **keys).run
    output = fork_server.start(["experiment.py", "--resume", str(begun.path)], merged=True).output()
    assert "compiled in " in output
    assert "warning" not in output
    check_same(whole.run, begun)
