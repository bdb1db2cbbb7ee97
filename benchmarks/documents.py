"""Folio and Hugging Face's Trainer on documents: the loss after the same number of tokens, and the
tokens per second of processor time, on one thread.

python -m benchmarks.documents FILE [--tokens 1000000]

All have 4 layers of 128 and one BPE of 8,192 tokens. Folio trains with the preset `modernbert`, with
packed windows and with those that begin anywhere. Trainer trains ModernBertForMaskedLM on windows of
128 tokens with three learning rates. The loss is that of each validation document alone, with
the masks of the protocol.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.command import commit, key_words, run_benchmark, save_results
from benchmarks.models import modernbert
from benchmarks.trials import RUNS, train
from configs.experiment import configs_of
from data.masking import MLM
from trained.load import Trained, load_trained
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer
from training.schedule import Stage

SEQ_LEN = 128
BATCH = 16
RATES = (1e-3, 2e-3, 4e-3)
WINDOWS = ("packed", "anywhere")
IGNORED = -100  # Hugging Face's label of positions without a loss
KEYS = {
    "data.tokens": "bpe:8192",
    "training.threads": 1,
    "training.evaluations": 1,
    "training.max_seconds": None,
    "sample.every_evaluations": 0,
    "callbacks": ["benchmarks/documents.py:ProcessorTime"],
    "name": "documents",
    "logs": str(RUNS),
}


class ProcessorTime(Callback):
    """Adds the processor time of the steps, in seconds, to the rows of a run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = 0.0

    def adjust(
        self, trainer: Trainer, stage: Stage, lr_share: float
    ) -> tuple[Stage, float]:
        self.began = time.process_time()
        return stage, lr_share

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        self.seconds += time.process_time() - self.began

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        row["processor_seconds"] = self.seconds


def main(options: Namespace, path: Path) -> None:
    """Train all models, print the table, and write JSON."""
    torch.set_num_threads(1)
    trials = []
    for windows in WINDOWS:
        trial, trained = folio(options.file, options.tokens, windows)
        trials.append(trial)
    for rate in RATES:
        trials.append(hugging_face(trained, options.tokens, rate))
    table = [
        {
            "model": trial["variant"],
            "loss": f"{trial['loss']:.3f}",
            "tokens per second of processor time": f"{trial['speed']:,.0f}",
        }
        for trial in trials
    ]
    save_results(path, table, trials=trials)


def folio(file: str, n_tokens: int, windows: str) -> tuple[dict[str, Any], Trained]:
    """A run of Folio, measured, and its model."""
    keys = {
        **KEYS,
        "data.corpus": str(Path(file).absolute()),
        "data.windows": windows,
        "training.max_chars": n_tokens,
    }
    run, _ = train(["--preset", "modernbert", *key_words(keys)])
    trained = load_trained(str(run.path))
    row = run.metrics()[-1]
    speed = row["chars"] / row["processor_seconds"]
    trial = measured(f"Folio, data.windows={windows}", trained, trained.model, speed)
    return trial, trained


def hugging_face(trained: Trained, n_tokens: int, rate: float) -> dict[str, Any]:
    """Hugging Face's model after Trainer, measured; `trained` is the run with the tokens."""
    torch.manual_seed(0)
    tokens = trained.data().stored_tokens
    assert tokens
    begins = torch.randint(len(tokens.training) - SEQ_LEN, (n_tokens // SEQ_LEN, 1))
    windows = tokens.training[begins + torch.arange(SEQ_LEN)]
    configs = configs_of(trained.values).model
    configs.n_tokens = trained.vocabulary.n_tokens
    model: Any = modernbert(configs)
    seconds = trained_by_trainer(model.model, windows, masker_of(trained), rate)
    speed = windows.numel() / seconds
    return measured(f"Trainer, rate {rate:g}", trained, model, speed)


def masker_of(trained: Trained) -> MLM:
    vocabulary = trained.vocabulary
    special = range(vocabulary.n_ordinary, vocabulary.n_tokens)
    return MLM(
        padding_token=vocabulary.padding_token,
        mask_token=vocabulary.mask_token,
        no_mask_tokens=list(special),
        n_tokens=vocabulary.n_tokens,
    )


def trained_by_trainer(model: Any, windows: Tensor, masker: MLM, rate: float) -> float:
    """Train on windows `[n_windows, seq_len]`, each read once; returns the seconds of processor
    time."""

    def batch_of(rows: list[Tensor]) -> dict[str, Tensor]:
        inputs, labels = masker(torch.stack(rows))
        labels[labels == masker.padding_token] = IGNORED
        return {"input_ids": inputs, "labels": labels}

    with TemporaryDirectory() as folder:
        trainer = trainer_of(model, folder, list(windows), batch_of, rate)
        began = time.process_time()
        trainer.train()
        return time.process_time() - began


def trainer_of(model: Any, folder: str, rows: Any, batch_of: Any, rate: float) -> Any:
    """Hugging Face's Trainer, which reads each of the rows once; `batch_of` makes a batch of some."""
    from transformers import Trainer as HuggingFaceTrainer
    from transformers import TrainingArguments

    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        learning_rate=rate,
        warmup_steps=0.1,
        weight_decay=0.01,
        adam_beta2=0.98,  # as Folio's
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return HuggingFaceTrainer(model, arguments, batch_of, rows)


def measured(
    variant: str, trained: Trained, model: Any, speed: float
) -> dict[str, Any]:
    """The loss of a model in nats per masked token. `speed` is in tokens per second of processor
    time."""
    model.eval()
    losses = torch.cat([*losses_of(trained, model)])
    loss = losses.mean().item()
    return {"variant": variant, "loss": loss, "speed": speed, "commit": commit()}


@torch.inference_mode()
def losses_of(trained: Trained, model: Any) -> Iterator[Tensor]:
    """The losses `[n_masked]` of each validation document, or part of one, without any others."""
    validation = trained.data().validation_set
    assert validation.attention_mask is not None
    of_window = zip(
        validation.windows,
        validation.masked,
        validation.attention_mask,
        strict=True,
    )
    for ids, is_masked, number in of_window:
        for document in number[is_masked].unique():
            is_here = number == document
            labels = ids[is_here]
            masked = is_masked[is_here]
            inputs = labels.masked_fill(masked, trained.vocabulary.mask_token)
            logits = model(inputs[None], masked.nonzero().flatten())
            yield F.cross_entropy(logits.double(), labels[masked], reduction="none")


if __name__ == "__main__":
    file = {"metavar": "FILE", "nargs": None, "help": "documents, such as a .jsonl"}
    tokens = {"type": int, "default": 1_000_000, "metavar": "N", "help": "to train on"}
    run_benchmark(main, unnamed=["file"], file=file, tokens=tokens)
