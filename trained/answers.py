"""Answers about one text at a time, for the page /try: the distribution of each blank, the exact
one, and attention."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from data.play.grammar import PLAY, grammar
from data.tasks import play
from model import MaskedLanguageModel
from runs.schema import MISSING, checked
from trained.batches import pieces
from trained.inside import attention_maps
from trained.load import Trained
from trained.template import Notation, read_template

LONGEST = 4_096  # characters of a text with blanks
MOST_CANDIDATES = 64  # of each blank
REQUEST = {
    "text": str,
    "top": (lambda top: type(top) is int and 1 <= top <= MOST_CANDIDATES, MISSING),
    "exact": (bool, MISSING),
    "attention": (int, None, MISSING),
    "blank": (str, None, MISSING),
}


def answers(trained: Trained, lines: Iterable[bytes]) -> Iterator[str]:
    """One line of JSON per request, which is a line of JSON too: the result of `answer`, or an
    `error`."""
    for line in lines:
        try:
            request = checked(json.loads(line), REQUEST, "the request")
            reply = answer(
                trained, **{name: request[name] for name in REQUEST if name in request}
            )
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            reply = {"error": f"the request is not JSON ({error})"}
        except (ValueError, RecursionError) as error:
            reply = {"error": str(error)}

        yield json.dumps(reply)


@torch.inference_mode()
def answer(
    trained: Trained,
    text: str,
    top: int = 8,
    exact: bool = False,
    attention: int | None = None,
    blank: str | None = None,
) -> dict[str, Any]:
    """The `top` tokens of each blank of a text (see `trained.template`) with their
    probabilities, given everything visible. They come from the model, or with `exact` from the
    play's grammar. `attention` is a position: its attention to each position, the mean over layers
    and heads, is returned as well. If `blank` is given, it alone is a blank, and backslashes are
    plain text. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(
            f"the text has {len(text):,} characters: this page takes {LONGEST:,}"
        )
    vocabulary = trained.vocabulary
    notation = Notation(blank, raw=bool(blank))
    ids = read_template(text, vocabulary, notation, unknown=True).ids
    windows = pieces(len(ids), trained.longest)
    if exact and (len(windows) > 1 or not is_of_play(trained)):
        raise ValueError(
            "exact probabilities are known for runs on the play, and texts of one window"
        )

    find = exactly if exact else predicted
    offsets = (ids == vocabulary.mask_token).nonzero().flatten()
    candidates = []
    for window, part in windows:
        wanted = offsets[(part.start <= offsets) & (offsets < part.stop)] - window.start
        if not len(wanted):
            continue
        best = find(trained, ids[window], wanted).topk(min(top, vocabulary.n_ordinary))
        for values, tokens in zip(
            best.values.tolist(), best.indices.tolist(), strict=True
        ):
            names = [vocabulary.decode([i]) for i in tokens]
            shares = [round(share, 5) for share in values]
            candidates.append(list(zip(names, shares, strict=True)))

    reply: dict[str, Any] = {
        "offsets": offsets.tolist(),
        "candidates": candidates,
        "is_of_play": is_of_play(trained),
    }
    is_modern = type(trained.model) is MaskedLanguageModel
    if attention is not None and vocabulary.is_characters and is_modern:
        shares = torch.zeros(len(ids))
        for window, part in windows:
            if part.start <= attention < part.stop:
                maps = attention_maps(trained.model, ids[window])
                shares[window] = maps[:, :, attention - window.start].mean((0, 1))
        reply["attention"] = [round(share, 4) for share in shares.tolist()]

    return reply


def predicted(trained: Trained, ids: Tensor, wanted: Tensor) -> Tensor:
    """P(token) by the model at the `wanted` positions of a window `[n]`: `[n_wanted, n_ordinary]`."""
    return trained.model(ids[None], wanted)[:, : trained.vocabulary.n_ordinary].softmax(
        -1
    )


def exactly(trained: Trained, ids: Tensor, wanted: Tensor) -> Tensor:
    """P(character) by the play's grammar, as `predicted`. Raises ValueError if the grammar cannot
    generate the text."""
    floor = play.floor()
    vocabulary = trained.vocabulary
    characters = vocabulary.encode(grammar().alphabet)
    number_of = torch.full((vocabulary.n_tokens,), floor.n_chars + 1)
    number_of[characters] = torch.arange(floor.n_chars)
    number_of[vocabulary.mask_token] = floor.n_chars
    is_wanted = torch.zeros(len(ids), dtype=torch.bool)
    is_wanted[wanted] = True
    shares = torch.zeros(len(wanted), vocabulary.n_ordinary, dtype=torch.float64)
    shares[:, characters] = floor.posteriors(number_of[ids][None], is_wanted[None])

    return shares


def is_of_play(trained: Trained) -> bool:
    """Whether the run was trained on the characters of the built-in play."""
    vocabulary = trained.vocabulary
    return (
        trained.run.corpus()["name"] == PLAY
        and vocabulary.is_characters
        and vocabulary.unknown_token is None
    )
