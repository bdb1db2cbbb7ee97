"""Writes what a page in a browser needs of a trained run: its model, its tokens, and for runs on the
play the grammar. `board/browser/models.js` reads it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from configs.callbacks import prompts
from configs.keys import ConfigError
from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY, grammar
from data.tokens import BYTES
from model.ngrams import NgramEmbedding
from runs.errors import InputError
from runs.files import write_json
from trained.answers import is_of_play
from trained.load import Trained
from trained.model_card import SOURCES, n_weights
from trained.onnx_file import export, open_session, quantize

N_WINDOWS = 64  # in which probabilities are compared


def check_tokens(trained: Trained) -> None:
    """Raise ConfigError if the page cannot cut a text into the tokens of a run."""
    vocabulary = trained.vocabulary
    if not vocabulary.is_characters and vocabulary.tokens != BYTES:
        raise ConfigError(
            f"data.tokens={trained.values['data.tokens']}: a page needs characters or bytes,"
            " because tokenizers do not run in it (--to onnx takes all runs)"
        )


def write_model(trained: Trained, folder: Path, is_quantized: bool) -> str:
    """Write weights.onnx, run.json and, on the play, grammar.json. Returns a line about the weights,
    which the page shows too.

    Raises InputError: the errors of `export`, and if the weights are quantized those of a missing
    text, on which the loss of precision is measured.
    """
    texts = validation_ids(trained) if is_quantized else None
    file = folder / "weights.onnx"
    export(trained, file)
    about = sizes(trained)
    if texts is not None:
        quantize(file)
        about += f" {loss_of_precision(trained, file, texts)}"

    write_json(folder / "run.json", facts(trained, about))
    if is_of_play(trained):
        write_json(folder / "grammar.json", automaton())
    return about


def sizes(trained: Trained) -> str:
    """The number of weights of a model, in words."""
    tables = [
        module.table.weight.numel()
        for module in trained.model.modules()
        if isinstance(module, NgramEmbedding)
    ]
    text = f"A model of {n_weights(trained.model) - sum(tables):,} weights"
    if tables:
        text += f" and a table of n-grams with {sum(tables):,}"
    name = corpus_of(trained)
    source = SOURCES.get(name)
    return f"{text}, trained on {source.description if source else name}."


def corpus_of(trained: Trained) -> str:
    """The name of a run's text, without its folder."""
    return Path(trained.run.corpus()["name"]).name


def facts(trained: Trained, about: str) -> dict[str, Any]:
    """The facts about a run that the page needs. The first keys are those of the dashboard's runs."""
    vocabulary = trained.vocabulary
    return {
        "uuid": trained.run.path.name,
        "text": corpus_of(trained),
        "tokens": vocabulary.tokens,
        "last": {"step": trained.run.metrics()[-1]["step"]},
        "about": f"{about} It runs in your browser: nothing that you type leaves it.",
        "longest": trained.longest,
        "names": [vocabulary.decode([i]) for i in range(vocabulary.n_ordinary)],
        "mask": vocabulary.mask_token,
        "is_of_play": is_of_play(trained),
        "example": example(trained),
    }


def example(trained: Trained) -> str | None:
    """The text that the page begins with: the first sample of training. None if the page has one of
    this corpus, or the run's text is missing."""
    if corpus_of(trained) in (PLAY, TINY_SHAKESPEARE):
        return None
    with suppress(InputError):
        return prompts(trained.data().root())[0][: trained.longest]
    return None


def automaton() -> dict[str, Any]:
    """The grammar of the play: the character of each state, and arrays with all edges."""
    merged = grammar().merged()
    edges = [
        (source, target, probability)
        for source, moves in enumerate(merged.successors)
        for target, probability in moves.items()
    ]
    sources, targets, probabilities = zip(*edges, strict=True)
    return {
        "characters": merged.characters,
        "sources": sources,
        "targets": targets,
        "probabilities": probabilities,
        "stationary": merged.stationary().tolist(),
    }


def validation_ids(trained: Trained) -> torch.Tensor:
    """Some windows of the validation text with their masks, `[n_windows, 256]`."""
    validation = trained.data().validation_set
    ids = validation.windows.masked_fill(
        validation.masked, trained.vocabulary.mask_token
    )
    step = max(1, len(ids) // N_WINDOWS)
    return ids[::step][:N_WINDOWS, : trained.longest]


@torch.inference_mode()
def loss_of_precision(trained: Trained, file: Path, ids: torch.Tensor) -> str:
    """The distance of a quantized model's probabilities from the run's at the masked positions of
    `ids`, in words: half the sum of the differences of all tokens."""
    mask = torch.ones_like(ids)
    inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    (logits,) = open_session(file).run(None, inputs)
    is_masked = ids == trained.vocabulary.mask_token
    quantized, exact = (
        scores[is_masked][:, : trained.vocabulary.n_ordinary].softmax(-1)
        for scores in (torch.from_numpy(logits), trained.scores(ids, mask.bool()))
    )
    moved = (quantized - exact).abs().sum(-1) / 2
    return (
        f"Its weights have 8 bits, which moves {moved.mean():.1%} of the probability of a blank to"
        f" other tokens on average, and {moved.max():.1%} at most."
    )
