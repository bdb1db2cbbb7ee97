"""Adds the most useful pieces of a text to a tokenizer.json: `data.extend_vocabulary=2000`.

A BPE (Sennrich et al. 2016) is trained on the pieces that the tokenizer cuts the text into, in
place of characters. Each merge of two pieces of a word is a new piece.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import groupby
from typing import Any, NamedTuple

from data.tokens.subwords import PIECE, ids_of, library, pieces_of, unknown_of

FIRST = 0x10000  # as which character the BPE sees piece 0; none of these is a space
MOST = 20_000_000  # characters of a text that are read
PREFERENCE = (
    0.01  # of the last new piece to its parts, in log-probability; twice for the first
)


class Extended(NamedTuple):
    content: dict[str, Any]  # of the tokenizer.json
    pieces: dict[str, list[int]]  # the ids that each new token replaces


def extended(content: Mapping[str, Any], text: str, n: int, n_rows: int) -> Extended:
    """A tokenizer.json with at most `n` more tokens, whose ids begin at `n_rows`."""
    tokenizer = library().Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = ids_of(content)
    model = deepcopy(content["model"])
    fill(model["vocab"], ids, n_rows)
    prefix = model.get("continuing_subword_prefix") or ""
    name_of = {chr(FIRST + i): token for token, i in ids.items()}
    pieces = {token: [i] for token, i in ids.items()}
    unknown = ids.get(unknown_of(content["model"]) or "")
    scores = dict(model["vocab"]) if isinstance(model["vocab"], list) else {}
    found = merges(words_of(tokenizer, text[:MOST], unknown), n)
    for number, (first, second) in enumerate(found):
        parts = [name_of[first], name_of[second]]
        name = parts[0] + parts[1].removeprefix(prefix)
        name_of[first + second] = name
        if name in pieces:
            continue
        if scores:
            # no two equal preferences, so that segmentations of a word do not tie
            preference = PREFERENCE * (2 - number / n)
            scores[name] = scores[parts[0]] + scores[parts[1]] + preference
            model["vocab"].append([name, scores[name]])
        else:
            add(model, name, parts, n_rows + len(pieces) - len(ids))
        pieces[name] = pieces[parts[0]] + pieces[parts[1]]
    new = {token: pieces[token] for token in list(pieces)[len(ids) :]}
    return Extended({**content, "model": model}, new)


def words_of(tokenizer: Any, text: str, unknown: int | None) -> Iterator[str]:
    """The words of a text; each character is a piece."""
    pieces = list(pieces_of(text, PIECE))
    for encoding in tokenizer.encode_batch(pieces, add_special_tokens=False):
        numbered = zip(encoding.word_ids, encoding.ids, strict=True)
        for _, word in groupby(numbered, lambda pair: pair[0]):
            ids = [i for _, i in word]
            if unknown not in ids:
                yield "".join(chr(FIRST + i) for i in ids)


def merges(words: Iterator[str], n: int) -> list[list[str]]:
    """The first `n` merges of a BPE, of pieces that occur together at least twice."""
    tokenizers = library()
    text = list(words)
    new = tokenizers.Tokenizer(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len({*"".join(text)}) + n, min_frequency=2, show_progress=False
    )
    new.train_from_iterator(text, trainer)
    return json.loads(new.to_str())["model"]["merges"]


def fill(vocab: Any, ids: Mapping[str, int], n_rows: int) -> None:
    """Give all tokens their ids in the vocabulary of a model, because the ids of added ones follow
    its end. Those of a Unigram are places in a list."""
    if isinstance(vocab, dict):
        vocab.update(ids)
        return
    names = {i: token for token, i in ids.items()}
    least = min(score for _, score in vocab)
    for i in range(len(vocab), n_rows):
        vocab.append([names.get(i, f"[row {i}]"), least])


def add(model: dict[str, Any], name: str, parts: list[str], i: int) -> None:
    """Add a token with the id `i`, which its parts make, to the WordPiece or BPE of a
    tokenizer.json."""
    model["vocab"][name] = i
    if "merges" in model:
        is_text = model["merges"] and isinstance(model["merges"][0], str)
        model["merges"].append(" ".join(parts) if is_text else parts)
