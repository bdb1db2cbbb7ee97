"""Weights of Hugging Face's checkpoints: into a new run, and back from a trained one.

Folio's ids have another order than the checkpoint's, so the rows of the embedding and of the
decoder change places. Everything else stays as it is.
"""

import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.experiment import configs_of
from configs.hugging_face import KEPT, PREFIX, Checkpoint
from configs.keys import ConfigError
from data.protocol import evenly_spaced
from data.vocabulary import MASK
from distributed.launch import rank
from runs.errors import first_line
from runs.files import write_atomically
from trained.load import Trained
from trained.model_card import card
from trained.saved_classifier import SavedClassifier
from training.callbacks.per_character import per_character
from training.evaluation import evaluate, evaluating

TOLERANCE = 2e-5  # of logits, as a share of the largest
N_WINDOWS = 64  # that show what more tokens change
NO_HEAD = "the checkpoint has no head for masked tokens: a new one, tied to its embedding, is trained"


def begin_with_checkpoint(model: Any, data: Any, values: Mapping[str, Any]) -> None:
    """Copy the weights of a checkpoint into the model of a new run, as `copy_checkpoint` does, and
    print what is new. Raises ConfigError."""
    has_head = copy_checkpoint(model, data, values)
    if not has_head and rank() == 0:
        print(NO_HEAD, flush=True)
    if data.root().model.checkpoint.extended:
        report_extension(model, data, values)


@torch.no_grad()
def copy_checkpoint(model: Any, data: Any, values: Mapping[str, Any]) -> bool:
    """Copy the weights of the checkpoint that the keys of a new run name into its model; `data` is
    the branch of the config tree. The row of a new token starts at the mean of the pieces that it
    replaces. Returns whether the checkpoint has a head.

    Raises ConfigError if the encoder lacks weights, or if transformers computes other logits with
    them.
    """
    folder = Path(values["initial_weights"].removeprefix(PREFIX))
    checkpoint = Checkpoint(folder, values["model.trust_remote_code"])
    with torch.random.fork_rng([]):
        torch.manual_seed(values["seed"])  # of a new head
        source, info = checkpoint.load(
            "AutoModelForMaskedLM", output_loading_info=True, dtype=torch.float32
        )
    source.eval()
    missing = sorted(info["missing_keys"])
    if any(name.startswith(source.base_model_prefix + ".") for name in missing):
        raise ConfigError(f"{PREFIX}{folder}: the weights of {missing[0]} are missing")
    vocabulary = data.vocabulary
    rows = torch.tensor(checkpoint.rows(vocabulary))
    is_known = rows >= 0
    extended = data.root().model.checkpoint.extended
    new = extended.pieces if extended else {}
    state = model.state_dict()
    for own, weight, has_rows in renamed(source, model):
        if not has_rows:
            state[own].copy_(weight)
            continue
        state[own][is_known] = weight[rows[is_known]].to(state[own].device)
        for token, pieces in new.items():
            state[own][vocabulary.id_of(token)] = weight[pieces].mean(0)

    check_same(model, source, rows, vocabulary.n_ordinary)
    return not missing


def report_extension(model: Any, data: Any, values: Mapping[str, Any]) -> None:
    """Print the loss per character with the tokens of the checkpoint, and with more."""
    plain = {**values, "data.extend_vocabulary": 0}
    before = configs_of(plain)
    copy_checkpoint(before.network, before.data, plain)
    n_new = data.vocabulary.n_tokens - before.data.vocabulary.n_tokens
    losses = [
        loss_per_character(network, branch)
        for network, branch in ((before.network, before.data), (model, data))
    ]
    if rank() == 0:
        print(
            f"loss per character of {N_WINDOWS} windows: {losses[0]:.4f} with the tokens of the checkpoint,"
            f" {losses[1]:.4f} with {n_new:,} more before training",
            flush=True,
        )


def loss_per_character(model: Any, data: Any) -> float:
    validation = data.validation_set
    validation = validation.take(evenly_spaced(validation.n_windows, N_WINDOWS))
    vocabulary = data.vocabulary
    seq_len = validation.windows.shape[1]
    evaluation = evaluate(model, validation, vocabulary.mask_token, seq_len)
    values = per_character(evaluation, validation, vocabulary.lengths)
    return values.get("loss.valid_per_character", math.nan)


def renamed(source: Any, model: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """The weights of a model of transformers with Folio's names, and whether they have a row per
    token; tied ones once."""
    prefix = f"{source.base_model_prefix}."
    embedding = source.get_input_embeddings().weight
    copies = model.copies()
    for name, weight in source.state_dict(keep_vars=True).items():
        own = f"head.{name}"
        if name.startswith(prefix):
            own = f"encoder.base.{name.removeprefix(prefix)}"
        is_of_tokens = weight is embedding or own.startswith("head.")
        if own not in copies:
            yield own, weight, is_of_tokens and len(weight) == len(embedding)


def check_same(model: Any, source: Any, rows: Tensor, n_ordinary: int) -> None:
    """Raise ConfigError unless a model has the logits of transformers' model `source`."""
    try:
        share = difference(model, source, rows, n_ordinary)
        problem = "" if share <= TOLERANCE else f"its logits differ by {share:.0e}"
    except Exception as error:  # whatever a class with another interface raises
        problem = first_line(error)
    if problem:
        raise ConfigError(f"{type(source).__name__} cannot be used here: {problem}")


def difference(model: Any, source: Any, rows: Tensor, n_ordinary: int) -> float:
    """The largest difference of the logits, as a share of the largest logit, for documents alone
    and for several in a window."""
    device = next(model.parameters()).device
    special = model.encoder.arrangement.special
    generator = torch.Generator().manual_seed(0)
    is_known = rows >= 0
    n_known = int(is_known[:n_ordinary].sum())  # the first ones
    ids = torch.randint(n_known, (1, 12), generator=generator)
    documents = torch.tensor([[1] * 5 + [2] * 7], device=device)
    expected = []
    for part in (ids, ids[:, :5], ids[:, 5:]):
        around = torch.tensor([[special.cls, *part[0].tolist(), special.sep]])
        logits = source(rows[around]).logits[0, 1:-1]
        expected.append(logits[:, rows[is_known]])
    with evaluating(model, device):
        alone = model(ids.to(device)).cpu()
        packed = model(ids.to(device), attention_mask=documents).cpu()
    own = torch.cat([alone, packed])[:, is_known]
    largest = (own - torch.cat(expected)).abs().max()
    return float(largest / expected[0].abs().max())


@torch.no_grad()
def export_checkpoint(trained: Trained, folder: Path) -> None:
    """Write a folder that transformers opens without code of Folio's: the class, the tokenizer and
    the tokens of the checkpoint that the run began with, and the run's weights.

    Raises ConfigError for a classifier, and if the run has n-grams, which the class has not.
    """
    if isinstance(trained, SavedClassifier):
        raise ConfigError(
            "this classifier cannot become one of transformers: export the run, and fine-tune it there"
        )
    if trained.encoder.ngrams is not None:
        raise ConfigError(
            "model.ngrams: no class of transformers has n-grams: export a run without them"
        )
    kept = Path(trained.values["data.tokens"])
    trusts = trained.values["model.trust_remote_code"]
    checkpoint = Checkpoint(kept, trusts)
    target: Any = checkpoint.untrained()
    rows = torch.tensor(checkpoint.rows(trained.vocabulary))
    weights = trained.model.state_dict()
    for own, weight, has_rows in renamed(target, trained.model):
        weight[rows if has_rows else slice(None)] = weights[own]
    target.save_pretrained(folder)
    for pattern in KEPT:
        for path in kept.glob(pattern):
            if not (folder / path.name).exists():
                shutil.copy(path, folder)
    mask = checkpoint.load("AutoTokenizer").mask_token
    write_atomically(folder / "README.md", card(trained).replace(MASK, mask).encode())
    exported = Checkpoint(folder, trusts).load("AutoModelForMaskedLM").eval()
    n_ordinary = trained.vocabulary.n_ordinary
    check_same(trained.model, exported, rows, n_ordinary)
