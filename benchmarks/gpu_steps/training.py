"""Steps that train through `experiment.py`."""

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.command import recipe
from benchmarks.gpu_steps.step import GPU_BASE, Step
from benchmarks.time_to_loss import LOSSES, PEERS, measure, median_seconds, peer_keys
from benchmarks.trials import last_losses, run_in, start
from benchmarks.turns import in_words

SECONDS = 180.0  # of training with the preset `gpu`
N_AT_ONCE = 4  # runs of the search; a small model leaves a GPU idle between its kernels
AROUND = 120.0  # seconds of a long run for its two starts, evaluations and checkpoints


def losses(step: Step, seed: int) -> None:
    """The losses that the preset `gpu` reaches in the middle and at the end of its time."""
    budget = {"training.max_seconds": SECONDS, "training.evaluations": 2}
    run = step.train(budget | {"seed": seed})
    rows = run.metrics()
    for seconds, row in zip((SECONDS / 2, SECONDS), rows, strict=True):
        mark = f"gpu, seed {seed}: loss after {seconds:.0f} s"
        step.mark(mark, row["loss.valid"])
    step.add("million characters", in_words(rows[-1]["chars"] / 1e6))


def search(step: Step) -> None:
    """The variants of recipes/gpu.yaml in two rounds of runs limited by characters, and the best
    one for as long as the preset."""
    variants, n_chars, n_kept = recipe("gpu").values()
    if step.is_dry:
        variants = dict(list(variants.items())[:2])

    for n in (n_chars, 2 * n_chars):
        # Compiling a variant would take longer than training it.
        budget = {"training.max_seconds": None, "training.max_chars": n}
        common = budget | {"training.compile": False, "training.evaluations": 1}
        reached = {}
        # their losses do not depend on their speed
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            runs = pool.map(step.train, [keys | common for keys in variants.values()])
            for name, run in zip(variants, runs, strict=True):
                reached[name] = last_losses(run)["loss.valid"]
                step.add(f"{n / 1e6:.0f} M characters, {name}", f"{reached[name]:.3f}")
        best = sorted(reached, key=reached.__getitem__)[:n_kept]
        variants = {name: variants[name] for name in best}

    name, keys = next(iter(variants.items()))
    last = last_losses(step.train(keys | {"training.max_seconds": SECONDS}))
    step.add(f"{SECONDS:.0f} s, {name}", f"{last['loss.valid']:.3f}")


def peers(step: Step) -> None:
    """Seconds of training until losses, of 90: the preset and Hugging Face's models, which are not
    searched here."""
    budget = {"training.max_seconds": 90.0, "training.evaluations": 12}
    variants: dict[str, dict[str, Any]] = {"Folio": {}}
    for name in PEERS["peers"]:
        variants[name] = peer_keys(name, "gpu")
    for name, keys in variants.items():
        results = measure(step.train(keys | budget))
        reached = ", ".join(
            f"{loss}: {median_seconds(loss, [results])}" for loss in LOSSES
        )
        step.add(name, f"{results['loss.valid']:.3f} at the end; {reached}")


def long(step: Step) -> None:
    """`gpu-base` for the seconds that are left, in two halves: Ctrl-C in the middle, then --resume."""
    seconds = step.seconds - AROUND
    words = step.words({"training.max_seconds": seconds}, GPU_BASE)
    # with the start
    limit = None if step.is_dry else (seconds + AROUND) / 2
    run = None

    while run is None or run.status()["status"] != "completed":
        process = start(words)
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
        run = run_in(output)
        if process.returncode not in (0, 130) or run is None:
            raise RuntimeError(output[-500:])
        words = ["--resume", str(run.path)]
        limit = None

    last = run.metrics()[-1]
    step.add(f"{seconds:.0f} s in two halves", f"loss {last['loss.valid']:.3f}")
    for name in ("chars_per_second", "share_of_peak", "waiting"):
        step.add(name, in_words(last.get(name, 0.0)))
