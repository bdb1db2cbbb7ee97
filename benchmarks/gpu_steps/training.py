"""Steps that train through `experiment.py`."""

from benchmarks.gpu_steps.step import GPU_BASE, Step
from benchmarks.turns import in_words

SECONDS = 180.0  # of training with the preset `gpu`
AROUND = 120.0  # seconds of a run for its start, evaluations and checkpoints
SHOWN = (
    "loss.valid",
    "chars_per_second",
    "share_of_peak",
    "waiting",
)


def losses(step: Step, seed: int) -> None:
    """The losses that the preset `gpu` reaches in the middle and at the end of its time."""
    run = step.train(
        {
            "training.max_seconds": SECONDS,
            "training.evaluations": 2,
            "seed": seed,
        }
    )
    middle, end = run.metrics()
    name = f"gpu, seed {seed}: loss after"
    step.mark(f"{name} {SECONDS / 2:.0f} s", middle["loss.valid"])
    step.mark(f"{name} {SECONDS:.0f} s", end["loss.valid"])
    step.add("million characters", in_words(end["chars"] / 1e6))


def loop(step: Step) -> None:
    """A short run of `gpu-base`, with an evaluation and a checkpoint. Small batches leave memory to
    the steps that run beside it."""
    train_base(
        step,
        {
            "training.max_steps": 6,
            "training.grad_accum_steps": 64,
        },
    )


def long(step: Step) -> None:
    """`gpu-base` for the seconds that are left."""
    seconds = step.seconds - AROUND
    train_base(step, {"training.max_seconds": seconds})


def train_base(step: Step, budget: dict[str, float]) -> None:
    """Train the preset `gpu-base`, and write what the page of a run shows."""
    own = budget | {"training.evaluations": 1}
    run = step.train(own, GPU_BASE)
    last = run.metrics()[-1]
    for name in SHOWN:
        step.add(name, in_words(last[name]))
