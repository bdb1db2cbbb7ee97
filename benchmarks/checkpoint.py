"""Folio and Hugging Face's Trainer continue one checkpoint: tokens per second, the loss after the
same number of tokens, and the peak of the process's memory.

python -m benchmarks.checkpoint FOLDER FILE [--tokens 300000] [--repeats 3]

FOLDER is a checkpoint of transformers; one without a head for masked tokens gets the same new one
for both. FILE is one plain text, so that both see the same windows. Both train with AdamW and one
learning rate, which rises for a tenth of the training and then falls, without dropout, on windows of
128 tokens, 16 at once, and mask 15%. The loss is Folio's `loss.valid`: the checkpoint that Trainer
saves is measured by a run without steps.
"""

import json
import resource
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.command import key_words, run_benchmark
from benchmarks.documents import BATCH, SEQ_LEN, trainer_of
from benchmarks.trials import RUNS, train
from benchmarks.turns import Measures, compare, in_process
from runs.run_folder import RunFolder
from trained.hugging_face_checkpoint import export_checkpoint
from trained.load import load_trained

RATE = 2e-4
KEYS = {
    "training.warmup": 0.1,
    "training.decay": 0.9,
    "training.stages": [{"until": 1.0, "seq_len": SEQ_LEN}],
    "training.chars_per_step": BATCH * SEQ_LEN,
    "training.evaluations": 1,
    "training.max_seconds": None,
    "sample.every_evaluations": 0,
    "name": "checkpoint",
    "logs": str(RUNS),
}


def main(options: Namespace, path: Path) -> None:
    """Measure both in turns, print the table, and write JSON."""
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        run = continued(options.folder, options.file, {"training.max_steps": 0})
        trained = load_trained(str(run.path))
        export_checkpoint(trained, whole)
        text = Path(folder) / "training.txt"
        text.write_text(trained.data().loaded.training)
        shared = (str(whole), options.file, options.tokens)
        candidates = {
            "Trainer": partial(in_process, by_trainer, *shared, str(text)),
            "Folio": partial(in_process, by_folio, *shared),
        }
        compare(
            path,
            {"continued": candidates},
            options.repeats,
            base="Trainer",
            tokens=options.tokens,
            loss_before=run.metrics()[-1]["loss.valid"],
        )


def continued(checkpoint: str, file: str, budget: dict[str, Any]) -> RunFolder:
    """A run of Folio that continues a checkpoint."""
    d_model = json.loads((Path(checkpoint) / "config.json").read_text())["hidden_size"]
    own = {
        "training.learning_rate": RATE * d_model / 128,  # the key is for 128
        "data.corpus": str(Path(file).absolute()),
    }
    keys = KEYS | own | budget
    run, _ = train(["--init-from", f"hf:{checkpoint}", *key_words(keys)])
    return run


def by_folio(checkpoint: str, file: str, n_tokens: int) -> Measures:
    run = continued(checkpoint, file, {"training.max_chars": n_tokens})
    row = run.metrics()[-1]
    return measures(
        row["chars"] / row["seconds"], row["loss.valid"], resource.RUSAGE_CHILDREN
    )


def by_trainer(checkpoint: str, file: str, n_tokens: int, text: str) -> Measures:
    """`text` is a file with the training part of `file`."""
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModelForMaskedLM.from_pretrained(checkpoint)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rows = rows_of(tokenizer, Path(text).read_text(), n_tokens)
    with TemporaryDirectory() as folder:
        collator = transformers.DataCollatorForLanguageModeling(tokenizer)
        trainer = trainer_of(model, folder, rows, collator, RATE)
        began = time.perf_counter()
        trainer.train()
        speed = len(rows) * SEQ_LEN / (time.perf_counter() - began)
        before = measures(speed, float("nan"), resource.RUSAGE_SELF)
        trainer.save_model(folder)
        tokenizer.save_pretrained(folder)
        row = continued(folder, file, {"training.max_steps": 0}).metrics()[-1]
    return {**before, "loss": row["loss.valid"]}


def rows_of(tokenizer: Any, text: str, n_tokens: int) -> list[dict[str, list[int]]]:
    """Windows of a text, in random order, each between special tokens."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    length = SEQ_LEN - 2
    begins = torch.randperm(len(ids) // length)[: n_tokens // SEQ_LEN] * length
    rows = []
    for begin in begins.tolist():
        part = ids[begin : begin + length]
        whole = [tokenizer.cls_token_id, *part, tokenizer.sep_token_id]
        rows.append({"input_ids": whole})
    return rows


def measures(speed: float, loss: float, who: int) -> Measures:
    megabytes = resource.getrusage(who).ru_maxrss * 1024 / 1e6
    return {"tokens per second": speed, "loss": loss, "MB of memory": megabytes}


if __name__ == "__main__":
    folder = {"metavar": "FOLDER", "nargs": None, "help": "a checkpoint"}
    file = {"metavar": "FILE", "nargs": None, "help": "one plain text"}
    tokens = {"type": int, "default": 300_000, "metavar": "N", "help": "to train on"}
    run_benchmark(
        main,
        unnamed=["folder", "file"],
        folder=folder,
        file=file,
        tokens=tokens,
        repeats=3,
    )
