"""Tokens of a Hugging Face tokenizer, which the package `tokenizers` encodes."""

import contextlib
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.tokens import SUBWORDS
from data.tokens.by_word import WORDS, is_by_word
from data.tokens.bytes import PiecesOfUtf8
from data.tokens.errors import TokensError, as_tokens_error
from data.vocabulary import MASK, PAD, UNK
from runs.reading import read_bytes

# by their names, even if the file does not call them special
SPECIAL = {PAD, MASK, UNK, "[CLS]", "[SEP]"}
PIECE = 1 << 17  # characters that a core encodes at once
MOST_KNOWN = 1 << 18  # words whose tokens are remembered, in some 50 MB
LONGEST_KNOWN = 40  # characters of these words
CUT = re.compile(r"\n(?=\S)")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
TRIAL = "A trial,\n 1 é 中.\n"  # encoded by each tokenizer when it is loaded


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


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """Discard the standard error of the whole process, to which a panic writes its backtrace."""
    with open(os.devnull, "wb") as null, contextlib.ExitStack() as restored:
        with contextlib.suppress(OSError):  # it is closed
            stderr = os.dup(2)
            restored.callback(os.close, stderr)
            restored.callback(os.dup2, stderr, 2)
            os.dup2(null.fileno(), 2)
        yield


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json, or of the vocabulary.json of a run, as `renumbered`.

    Raises TokensError.
    """
    try:
        with as_tokens_error(
            f"data.tokens: {str(path)!r} is not a tokenizer.json of Hugging Face"
        ):
            content = json.loads(read_bytes(path))
            tokenizer = renumbered(content.get("tokenizer", content))
            load(tokenizer)
            return tokenizer
    except OSError as error:
        raise TokensError(
            f"data.tokens: cannot read {str(path)!r} ({error.strerror or error})"
        ) from error


def check_merges(model: Mapping[str, Any]) -> None:
    """Raise ValueError for a merge at which `tokenizers` would abort, because it cuts the merge
    inside a character."""
    prefix = model.get("continuing_subword_prefix")
    if not prefix:
        return
    for first, second in map(split_merge, model.get("merges", ())):
        if not second.startswith(prefix):
            raise ValueError(f"the merge of {first!r} and {second!r} lacks {prefix!r}")


def renumbered(content: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json with Folio's ids: ordinary tokens in the file's order, `[PAD]`, `[MASK]`,
    and `[UNK]` if it has one.

    Leaves out other special tokens, truncation, padding and dropout. Raises any error if this is
    not a tokenizer.
    """
    model = dict(content["model"])
    unknown = model.get("unk_token")
    is_unigram = isinstance(model["vocab"], list)  # of [token, score], not {token: id}
    if is_unigram:
        id_of = {token: i for i, (token, _) in enumerate(model["vocab"])}
        if model.get("unk_id") is not None:
            unknown = model["vocab"][model["unk_id"]][0]
    else:
        id_of = dict(model["vocab"])

    check_merges(model)
    special = SPECIAL | {unknown}
    for token in content["added_tokens"]:
        id_of[token["content"]] = token["id"]
        if token["special"]:
            special.add(token["content"])

    tokens = [token for token in id_of if token not in special]
    tokens.sort(key=id_of.__getitem__)
    tokens += [PAD, MASK]
    if unknown in id_of:
        tokens.append(UNK)

    new_id_of = {token: i for i, token in enumerate(tokens)}

    if is_unigram:
        scores = dict(model["vocab"])
        least = min(scores.values())
        model["vocab"] = [[token, scores.get(token, least)] for token in tokens]
        model["unk_id"] = new_id_of.get(UNK)
    else:
        model["vocab"] = new_id_of
        if unknown:
            model["unk_token"] = UNK

    if "dropout" in model:
        model["dropout"] = None

    added = [
        token | {"id": new_id_of[token["content"]]}
        for token in content["added_tokens"]
        if token["content"] not in special
    ]
    removed = dict.fromkeys(("post_processor", "truncation", "padding"))
    return {**content, "model": model, "added_tokens": added, **removed}


def split_merge(merge: str | list[str]) -> list[str]:
    """The two tokens of a merge, which older files write as one string."""
    return merge.split(" ") if isinstance(merge, str) else merge


def load(content: Mapping[str, Any]) -> tuple[Any, dict[str, bytes]]:
    """Load a tokenizer.json that has been `renumbered`, and try it.

    Returns the tokenizer, and its ordinary tokens in the order of their ids with their text in
    UTF-8. Raises any error, also a panic, if the tokenizer does not work.
    """
    with without_stderr():
        tokenizer = library().Tokenizer.from_str(json.dumps(content))
        with contextlib.suppress(
            Exception
        ):  # it may not know the text; a panic is no Exception
            tokenizer.encode_batch_fast([TRIAL])
        vocab = tokenizer.get_vocab()
        ordinary = sorted(vocab.keys() - {PAD, MASK, UNK}, key=vocab.__getitem__)
        return tokenizer, dict(
            zip(ordinary, surfaces(tokenizer, content, ordinary), strict=True)
        )


class SubwordVocabulary(PiecesOfUtf8):
    """The tokens of a Hugging Face tokenizer: words, parts of words, and punctuation."""

    tokens = SUBWORDS

    def __init__(
        self, tokenizer: Mapping[str, Any], special_tokens: Iterable[str] = (PAD, MASK)
    ):
        """`tokenizer` is a tokenizer.json that has been `renumbered`; it decides whether there is
        an `[UNK]`. Raises TokensError."""
        self.tokenizer = dict(tokenizer)
        with as_tokens_error("the tokenizer of the vocabulary cannot be loaded"):
            self._tokenizer, texts = load(tokenizer)

        special = [PAD, MASK]
        if self._tokenizer.token_to_id(UNK) is not None:
            special.append(UNK)

        special += [token for token in special_tokens if token not in (PAD, MASK, UNK)]
        self.number_tokens(texts, special)
        self._no_text = {self.padding_token, self.mask_token}
        self._is_by_word = is_by_word(tokenizer)
        self._known: dict[str, bytes] = {}  # ids of words

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text. Raises TokensError if a part of it has no token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """Token ids (int64) of each text. Raises TokensError if a part of one has no token.

        The tokenizer encodes the different parts on all cores. Words are remembered.
        """
        parts = [self._parts_of(text) for text in texts]
        different = set(chain.from_iterable(parts))
        known = self._known  # other threads may add words to it
        ids_of = {part: known[part] for part in different if part in known}
        new = self._ids_of(list(different.difference(ids_of)))
        ids_of |= new
        if len(known) > MOST_KNOWN:
            self._known = known = {}
        known |= {word: ids for word, ids in new.items() if len(word) <= LONGEST_KNOWN}

        encoded = []
        for of_text in parts:
            ids = np.frombuffer(b"".join(map(ids_of.__getitem__, of_text)), np.int32)
            encoded.append(torch.from_numpy(ids.astype(np.int64)))

        return encoded

    def _parts_of(self, text: str) -> list[str]:
        """The parts of a text that are encoded by themselves."""
        pieces = list(pieces_of(text, PIECE))
        if self._is_by_word:
            return [word for piece in pieces for word in WORDS.split(piece)]
        return pieces

    def _ids_of(self, parts: list[str]) -> dict[str, bytes]:
        """The token ids of texts that are not cut, as bytes of int32."""
        with as_tokens_error("the tokenizer cannot encode the text"):
            encodings = self._tokenizer.encode_batch_fast(
                parts, add_special_tokens=False
            )

        lists = [encoding.ids for encoding in encodings]
        if not self._no_text.isdisjoint(chain.from_iterable(lists)):
            raise TokensError(
                f"the tokenizer reads {PAD} or {MASK} in the text as a special token: remove it"
            )

        return {
            part: array("i", ids).tobytes()
            for part, ids in zip(parts, lists, strict=True)
        }

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


def surfaces(
    tokenizer: Any, content: Mapping[str, Any], ordinary: list[str]
) -> list[bytes]:
    """The text of each ordinary token in UTF-8, spaces included: " the" for the token ▁the, "ing"
    for ##ing."""
    decoder = content.get("decoder") or {}
    decoders = {each.get("type") for each in [decoder, *decoder.get("decoders", [])]}
    if "ByteLevel" in decoders:
        added = {token["content"] for token in content["added_tokens"]}
        byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
        return [
            bytes(map(byte_of.__getitem__, token))
            if token not in added and byte_of.keys() >= set(token)
            else token.encode()
            for token in ordinary
        ]

    texts = [text.encode() for text in decoded_alone(tokenizer, len(ordinary))]
    if "ByteFallback" in decoders:
        for i, token in enumerate(ordinary):
            if match := BYTE.fullmatch(token):
                texts[i] = bytes.fromhex(match[1])

    return texts


def decoded_alone(tokenizer: Any, n: int) -> list[str]:
    """The text of each of the first `n` tokens: what it adds between two others, if possible."""
    texts = tokenizer.decode_batch([[i] for i in range(n)], skip_special_tokens=False)
    anchor = next((i for i, text in enumerate(texts) if text.isalpha()), None)
    if anchor is None:
        return texts

    before = texts[anchor]
    after = tokenizer.decode([anchor, anchor], skip_special_tokens=False)[len(before) :]
    sequences = [[anchor, i, anchor] for i in range(n)]
    for i, text in enumerate(
        tokenizer.decode_batch(sequences, skip_special_tokens=False)
    ):
        rest = text.removeprefix(before)
        if text.startswith(before) and rest.endswith(after):
            texts[i] = rest.removesuffix(after)

    return texts


def byte_alphabet() -> list[str]:
    """The characters by which byte-level tokenizers write the bytes 0 to 255 (Radford et al. 2019,
    GPT-2)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [
        chr(byte) if byte in shown else chr(256 + hidden.index(byte))
        for byte in range(256)
    ]
