"""The checkpoints that a run has kept, and how far it was trained at each."""

from runs.run_folder import RunFolder
from training.checkpoint import load_checkpoint


def checkpoints_of(run: RunFolder) -> list[RunFolder]:
    """The kept checkpoints of a run, and last the run itself."""
    return [*(RunFolder(run.path, name) for name in run.kept()), run]


def trained_tokens(run: RunFolder) -> int:
    """The tokens that a checkpoint was trained on."""
    state = load_checkpoint(run.weights_path).state
    at_step = {row["step"]: row["chars"] for row in run.metrics()}
    return state.get("chars") or at_step[state["step"]]
