"""A step that runs: its presets and texts, and the rows and marks that it writes."""

from pathlib import Path
from typing import Any

import torch

from benchmarks.command import key_words
from benchmarks.gpu_steps.documents import write_documents
from benchmarks.gpu_steps.marks import MARKS
from benchmarks.trials import RUNS, train
from configs.command_line.command import PRESETS, read_config, resolve
from configs.devices import best_device
from data.play.grammar import play
from runs.files import write_atomically, write_json
from runs.run_folder import RunFolder

GPU = "gpu"
GPU_BASE = "gpu-base"
# of a dry run
TINY: dict[str, Any] = {
    "model.d_model": 32,
    "model.n_layers": 2,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.ngram_rows": 4_096,
    "training.compile": False,
    "training.chars_per_step": 1_024,
    "training.grad_accum_steps": 1,
}
TINY_TOKENS = {"data.tokens": "bpe:512"}
SHORT = {
    "training.max_seconds": None,
    "training.max_chars": None,
    "training.max_steps": 4,
}


class Step:
    """One step of the command: its limit in seconds, device, texts, and the result that it writes."""

    def __init__(self, file: Path, seconds: float, is_dry: bool):
        self.file = file
        self.seconds = seconds
        self.is_dry = is_dry
        self.device = torch.device(best_device())
        self.passed = True
        self.rows: list[tuple[str, str]] = []
        self.figures: dict[str, float] = {}

    def add(self, what: str, value: object, passed: bool = True) -> None:
        """Write a row; a step that has not `passed` one fails."""
        self.rows.append((what, str(value) if passed else f"{value}: failed"))
        self.passed &= passed
        self.write()

    def mark(self, name: str, figure: float) -> None:
        """Write the figure of one of MARKS."""
        assert name in MARKS
        self.figures[name] = figure
        self.write()

    def write(self) -> None:
        result = {
            "passed": self.passed,
            "rows": self.rows,
            "figures": self.figures,
        }
        write_json(self.file, result)

    def text(self, preset: str) -> str:
        """The value of `data.corpus` for a preset; its text is written once for all steps."""
        if preset == GPU and not self.is_dry:
            return "tiny_shakespeare"
        name = "play.txt" if preset == GPU else "documents.jsonl"
        path = self.file.with_name(name)
        if path.exists():
            return str(path)
        if preset == GPU:
            text = play(40_000)
            write_atomically(path, text.encode())
        elif self.is_dry:
            write_documents(path, n_documents=300, longest=50)
        else:
            write_documents(path, n_documents=5_000, longest=2_000)
        return str(path)

    def keys(self, preset: str, own: dict[str, Any]) -> dict[str, Any]:
        """The keys of a step on top of a preset."""
        common = {
            "data.corpus": self.text(preset),
            "sample.every_evaluations": 0,
        }
        if self.is_dry:
            own = own | TINY
        if self.is_dry and preset == GPU_BASE:
            own = own | TINY_TOKENS
        return common | own

    def values(self, own: dict[str, Any], preset: str = GPU) -> dict[str, Any]:
        """All keys of a preset, with a step's own on top."""
        of_preset = read_config(PRESETS / f"{preset}.yaml")
        return resolve(of_preset, self.keys(preset, own))

    def train(self, own: dict[str, Any], preset: str = GPU) -> RunFolder:
        """Train with a preset in a process of its own."""
        place = {"name": "gpu", "logs": str(RUNS)}
        keys = self.keys(preset, place | own)
        if self.is_dry:
            keys |= SHORT
        words = ["--preset", preset]
        words += key_words(keys)
        run, _ = train(words)
        return run
