"""Tokens of a Hugging Face tokenizer, which the package `tokenizers` encodes."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from data.corpus import CorpusError
from data.tokens.byte_tokens import PiecesOfUtf8
from data.vocabulary import MASK, PAD, UNK
from runs.reading import read_bytes

# by their names, even if the file does not call them special
SPECIAL = {PAD, MASK, UNK, "[CLS]", "[SEP]"}
PIECE = 1 << 17  # characters that a core encodes at once
CUT = re.compile(r"\n(?=\S)")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TokensError(CorpusError):
    """A tokenizer is missing or unusable; the message is one line for the user."""


def library() -> Any:
    """The package `tokenizers`. Raises TokensError if it is not installed."""
    # otherwise it warns in each process started after its use
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise TokensError(
            "data.tokens: tokenizers is not installed: pip install -r requirements-text.txt"
        ) from error
    return tokenizers


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json, or of the vocabulary.json of a run, as `renumbered`. Raises
    TokensError."""
    try:
        content = json.loads(read_bytes(path))
        return renumbered(content.get("tokenizer", content))
    except OSError as error:
        raise TokensError(
            f"data.tokens: cannot read {str(path)!r} ({error.strerror or error})"
        ) from error
    except TokensError:
        raise
    # not UTF-8, not JSON, too deep, not a tokenizer; `tokenizers` raises Exception itself
    except Exception as error:
        reason = " ".join(str(error).split())[:100]
        raise TokensError(
            f"data.tokens: {str(path)!r} is not a tokenizer.json of Hugging Face ({reason})"
        ) from error


def renumbered(content: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json with Folio's ids: ordinary tokens in the file's order, `[PAD]`, `[MASK]`,
    and `[UNK]` if it has one. Other special tokens, truncation, padding and dropout go. Raises any
    error if this is not a tokenizer."""
    model = dict(content["model"])
    # [token, score], where other models have token: id
    is_unigram = isinstance(model["vocab"], list)
    id_of = (
        {token: i for i, (token, _) in enumerate(model["vocab"])}
        if is_unigram
        else dict(model["vocab"])
    )
    id_of |= {token["content"]: token["id"] for token in content["added_tokens"]}
    unknown = model.get("unk_token")
    if is_unigram and model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    special = (
        {token["content"] for token in content["added_tokens"] if token["special"]}
        | SPECIAL
        | {unknown}
    )
    ordinary = sorted(
        (token for token in id_of if token not in special), key=lambda token: id_of[token]
    )
    number = {
        token: i
        for i, token in enumerate([*ordinary, PAD, MASK, *([UNK] if unknown in id_of else [])])
    }
    if is_unigram:
        scores = dict(map(tuple, model["vocab"]))
        least = min(scores.values())
        model |= {
            "vocab": [[token, scores.get(token, least)] for token in number],
            "unk_id": number.get(UNK),
        }
    else:
        model["vocab"] = number
        model |= {"unk_token": UNK} if unknown else {}
    model |= {"dropout": None} if "dropout" in model else {}
    kept = [token for token in content["added_tokens"] if token["content"] not in special]
    added = [token | {"id": number[token["content"]]} for token in kept]
    changed = {
        "model": model,
        "added_tokens": added,
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    found = {**content, **changed}
    library().Tokenizer.from_str(json.dumps(found))
    return found


class SubwordVocabulary(PiecesOfUtf8):
    """The tokens of a Hugging Face tokenizer: words, parts of words, and punctuation."""

    tokens: ClassVar[str] = "subwords"

    def __init__(self, tokenizer: Mapping[str, Any], special_tokens: Iterable[str] = (PAD, MASK)):
        """`tokenizer` is a tokenizer.json that has been `renumbered`, which decides whether there
        is an `[UNK]`."""
        self.tokenizer = dict(tokenizer)
        self._tokenizer = library().Tokenizer.from_str(json.dumps(self.tokenizer))
        vocab = self._tokenizer.get_vocab()
        ordinary = sorted(vocab.keys() - {PAD, MASK, UNK}, key=lambda token: vocab[token])
        others = [token for token in special_tokens if token not in (PAD, MASK, UNK)]
        special = [PAD, MASK, *([UNK] if UNK in vocab else []), *others]
        self._number(ordinary, surfaces(self._tokenizer, self.tokenizer, ordinary), special)

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text. Raises TokensError if the tokenizer has none for a part of
        it."""
        try:
            encodings = self._tokenizer.encode_batch_fast(
                list(pieces_of(text, PIECE)), add_special_tokens=False
            )
        except Exception as error:  # the type that `tokenizers` raises
            reason = " ".join(str(error).split())[:100]
            raise TokensError(f"the tokenizer cannot encode the text ({reason})") from error
        ids = torch.cat([torch.tensor(encoding.ids, dtype=torch.int64) for encoding in encodings])
        if torch.isin(ids, torch.tensor([self.padding_token, self.mask_token])).any():
            raise TokensError(
                f"the tokenizer reads {PAD} or {MASK} in the text as a special token: remove it"
            )
        return ids

    def description(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "special_tokens": self.special_tokens,
            "tokenizer": self.tokenizer,
        }


def pieces_of(text: str, size: int) -> Iterator[str]:
    """A text in pieces of at least `size` characters, each but the last cut after a newline before
    a non-space."""
    begin = 0
    while match := CUT.search(text, begin + size):
        yield text[begin : match.end()]
        begin = match.end()
    yield text[begin:]


def surfaces(tokenizer: Any, content: Mapping[str, Any], ordinary: list[str]) -> list[bytes]:
    """The text of each ordinary token in UTF-8, spaces included: " the" for the token ▁the, "ing"
    for ##ing."""
    decoder = content.get("decoder") or {}
    kinds = {each["type"] for each in [decoder, *decoder.get("decoders", [])] if "type" in each}
    added = {token["content"] for token in content["added_tokens"]}
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
        return [
            bytes(byte_of[c] for c in token)
            if token not in added and byte_of.keys() >= set(token)
            else token.encode()
            for token in ordinary
        ]
    alone = tokenizer.decode_batch([[i] for i in range(len(ordinary))], skip_special_tokens=False)
    anchor = next((i for i, text in enumerate(alone) if text.isalpha()), None)
    found = [text.encode() for text in alone]
    if anchor is not None:  # a token's text is what it adds between two others
        before = alone[anchor]
        after = tokenizer.decode([anchor, anchor], skip_special_tokens=False)[len(before) :]
        between = [[anchor, i, anchor] for i in range(len(ordinary))]
        for i, text in enumerate(tokenizer.decode_batch(between, skip_special_tokens=False)):
            if (
                text.startswith(before)
                and text.endswith(after)
                and len(text) >= len(before) + len(after)
            ):
                found[i] = text[len(before) : len(text) - len(after)].encode()
    if "ByteFallback" in kinds:
        for i, token in enumerate(ordinary):
            if match := BYTE.fullmatch(token):
                found[i] = bytes([int(match[1], 16)])
    return found


def byte_alphabet() -> list[str]:
    """The characters by which byte-level tokenizers write the bytes 0 to 255 (Radford et al. 2019,
    GPT-2)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]
