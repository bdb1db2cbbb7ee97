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

from data.tokens import HUB_NAME, SUBWORDS
from data.tokens.alignment import Alignment
from data.tokens.by_word import WORDS, is_by_word
from data.tokens.bytes import PiecesOfUtf8
from data.tokens.errors import TokensError, as_tokens_error, reason_of
from data.tokens.surfaces import is_byte_level, surfaces
from data.vocabulary import MASK, PAD, UNK
from runs.reading import read_bytes

# by their names, even if the file does not call them special
SPECIAL = {PAD, MASK, UNK, "[CLS]", "[SEP]"}
PIECE = 1 << 17  # characters that a core encodes at once
MOST_KNOWN = 1 << 18  # words whose tokens are remembered, in some 50 MB
LONGEST_KNOWN = 40  # characters of these words
CUT = re.compile(r"\n(?=\S)")
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


def read_tokenizer(name: str | Path) -> dict[str, Any]:
    """The content of a tokenizer as `renumbered`: of a tokenizer.json, of the vocabulary.json of a
    run, of a folder or name on the Hub of a Hugging Face tokenizer.

    Raises TokensError.
    """
    try:
        with as_tokens_error(
            f"data.tokens: {str(name)!r} is not a tokenizer.json of Hugging Face"
        ):
            content = json.loads(content_of(str(name)))
            tokenizer = renumbered(content.get("tokenizer", content))
            load(tokenizer)
            return tokenizer
    except OSError as error:
        raise TokensError(
            f"data.tokens: cannot read {str(name)!r} ({error.strerror or error})"
        ) from error


def content_of(name: str) -> str | bytes:
    """The tokenizer.json called `name`. Raises TokensError or OSError."""
    path = Path(name)
    if is_hub_name(name):
        path = from_hub(name)
    elif path.is_dir():
        path /= "tokenizer.json"
    else:
        return read_bytes(path)

    return read_bytes(path) if path.exists() else converted(name)


def is_hub_name(name: str) -> bool:
    """Whether a name has the form of one on the Hub, such as answerdotai/ModernBERT-base, and is no
    path."""
    return bool(HUB_NAME.fullmatch(name)) and not Path(name).exists()


def from_hub(name: str) -> Path:
    """The tokenizer.json of a repository on the Hub, which is downloaded once; a path without a
    file if the repository has none."""
    library()  # which brings the package of the Hub
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    file = "tokenizer.json"
    try:
        return Path(hf_hub_download(name, file))
    except RemoteEntryNotFoundError:
        return Path(name, file)
    except Exception as error:
        raise TokensError(
            f"data.tokens: cannot get {name!r}, neither here nor from the Hub ({reason_of(error)})"
        ) from error


def converted(name: str) -> str:
    """The tokenizer.json of a folder or repository with the files of earlier formats, such as
    vocab.txt."""
    try:
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(name)
        content = tokenizer.backend_tokenizer.to_str()
    except ModuleNotFoundError as error:
        raise TokensError(
            f"data.tokens: {name!r} has no tokenizer.json: pip install transformers to read it"
        ) from error
    except Exception as error:
        raise TokensError(
            f"data.tokens: {name!r} has no tokenizer ({reason_of(error)})"
        ) from error
    # transformers makes an empty tokenizer if it knows the model's class
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise TokensError(
            f"data.tokens: {name!r} has no tokenizer: write it there with save_pretrained"
        )
    return content


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
    unknown = unknown_of(model)
    is_unigram = isinstance(model["vocab"], list)  # of [token, score], not {token: id}

    check_merges(model)
    id_of = ids_of(content)
    special = SPECIAL | {unknown}
    for token in content["added_tokens"]:
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


def unknown_of(model: Mapping[str, Any]) -> str | None:
    """The token for all that the model of a tokenizer.json does not know."""
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def ids_of(content: Mapping[str, Any]) -> dict[str, int]:
    """The id of each token in a tokenizer.json."""
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {token: i for i, (token, _) in enumerate(vocab)}
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    return {**vocab, **added}


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
        self,
        tokenizer: Mapping[str, Any],
        special_tokens: Iterable[str] = (PAD, MASK),
        learned: Mapping[str, Any] | None = None,
    ):
        """`tokenizer` is a tokenizer.json that has been `renumbered`; it decides whether there is
        an `[UNK]`. `learned` are the `changes_in` a text. Raises TokensError."""
        self.tokenizer = dict(tokenizer)
        with as_tokens_error("the tokenizer of the vocabulary cannot be loaded"):
            self._tokenizer, texts = load(tokenizer)

        special = [PAD, MASK]
        if self._tokenizer.token_to_id(UNK) is not None:
            special.append(UNK)

        special += [token for token in special_tokens if token not in (PAD, MASK, UNK)]
        self.learned = learned or {"after_space": {}, "lengths": {}}
        with as_tokens_error(
            "what the vocabulary has learned of its tokens is damaged"
        ):
            # a decoder writes the space after a token with such a suffix
            has_suffix = tokenizer["model"].get("end_of_word_suffix")
            for token, after_space in self.learned["after_space"].items():
                visible = texts[token].strip() if has_suffix else texts[token].lstrip()
                if visible:
                    texts[token] = b" " * after_space + visible

            self.number_tokens(texts, special)
            for token, length in self.learned["lengths"].items():
                self.lengths[self.id_of(token)] = length

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

    def aligned(self, text: str) -> Alignment:
        """The tokens of a text with their places in it. Raises TokensError."""
        pieces = list(pieces_of(text, PIECE))
        with as_tokens_error("the tokenizer cannot encode the text"):
            encodings = self._tokenizer.encode_batch(pieces, add_special_tokens=False)

        ids = list(chain.from_iterable(encoding.ids for encoding in encodings))
        spans = [np.empty((0, 2), np.int64)]
        begin = 0
        for piece, encoding in zip(pieces, encodings, strict=True):
            spans.append(np.array(encoding.offsets, np.int64).reshape(-1, 2) + begin)
            begin += len(piece)

        return Alignment(text, np.array(ids, np.int64), np.concatenate(spans))

    def encoded(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        aligned = self.aligned(text)
        return torch.from_numpy(aligned.ids), torch.from_numpy(aligned.begins)

    def text_of(
        self, ids: torch.Tensor, original: str | None = None
    ) -> tuple[str, torch.Tensor]:
        text, begins = super().text_of(ids, original)
        if original is None or original == text:
            return text, begins
        return original, self.encoded(original)[1]

    def lost(self, text: str) -> tuple[int, int]:
        if self.decode(self.encode(text)) == text:
            return 0, 0
        aligned = self.aligned(text)
        has_token = aligned.covered(np.full(len(aligned.ids), True))
        n_unknown = aligned.covered(aligned.ids == self.unknown_token).sum()
        return int(n_unknown), int((~has_token & ~aligned.is_space).sum())

    def changes_in(self, text: str) -> dict[str, Any] | None:
        """How tokens are written in a text that the tokenizer changes, for `learned`: whether they
        follow a space, and the mean number of characters that begin in them. None if it changes
        nothing."""
        if self.decode(self.encode(text)) == text:
            return None
        aligned = self.aligned(text)
        names = dict(enumerate(self.ordinary))
        after_space = {} if is_byte_level(self.tokenizer) else aligned.after_space()
        lengths = aligned.mean_lengths()
        return {
            "after_space": {
                names[i]: after_space[i] for i in after_space if i in names
            },
            "lengths": {names[i]: round(lengths[i], 4) for i in lengths if i in names},
        }

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
            **({"learned": self.learned} if self.learned["lengths"] else {}),
        }


def pieces_of(text: str, size: int) -> Iterator[str]:
    """A text in pieces of at least `size` characters, each but the last cut after a newline before
    a non-space."""
    begin = 0
    while match := CUT.search(text, begin + size):
        yield text[begin : match.end()]
        begin = match.end()

    yield text[begin:]
