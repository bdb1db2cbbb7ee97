"""Checks `data.tokens` before anything is built, and finds the tokens of a run that is continued."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from configs.branch import is_reference
from configs.hugging_face import ARCHITECTURE, kept_keys
from configs.keys import ConfigError, did_you_mean
from data.tokens import BPE, BYTES, CHARACTERS, CUSTOM, HUB_NAME
from runs.files import write_atomically
from runs.run_folder import RunFolder

FEWEST = 257  # tokens of a BPE: the bytes and one merge
MOST = 1_000_000


def check_tokens(values: dict[str, Any]) -> None:
    """Raise ConfigError if `data.tokens` is not of a known form, or does not fit other keys. Reads
    no file."""
    tokens = values["data.tokens"]
    if match := BPE.fullmatch(tokens):
        n = match[1]
        if not re.fullmatch("[0-9]{1,8}", n) or not FEWEST <= int(n) <= MOST:
            raise ConfigError(
                f"data.tokens={tokens}: bpe:N needs an integer N from {FEWEST} to {MOST:,}"
            )
    is_checkpoint = values["model.architecture"] == ARCHITECTURE
    if values["data.extend_vocabulary"] and not is_checkpoint:
        raise ConfigError(
            "data.extend_vocabulary needs --init-from hf:FOLDER: for other tokens, set data.tokens=bpe:N"
        )
    if tokens != CHARACTERS:
        for key in (
            "data.unknown_below",
            "data.extra_characters",
            "masking.no_mask_tokens",
        ):
            if values[key]:
                raise ConfigError(
                    f"{key} requires data.tokens=characters (now {tokens})"
                )


def read_tokens(
    values: dict[str, Any], resumed: RunFolder | None = None
) -> dict[str, Any]:
    """The values of a run that will be trained, with the absolute path of its tokenizer, which can
    be loaded.

    A resumed run must have the same tokenizer as before. Raises InputError with one line.
    """
    tokens = values["data.tokens"]
    if tokens in (CHARACTERS, BYTES) or is_reference(tokens):
        return values
    match = BPE.fullmatch(tokens)
    path = tokens if match else str(_path(tokens))
    if resumed and path != resumed.config().get("data.tokens", CHARACTERS):
        # other tokens, which the caller refuses, or the run's own after a move
        return values | {"data.tokens": path}
    from data.tokens.subwords import library, read_tokenizer

    tokenizer = library() if match else read_tokenizer(path)
    own = resumed.vocabulary().get("tokenizer") if resumed else tokenizer
    if (
        resumed and match
    ):  # it finds its own BPE in the cache, which may have been emptied
        from data.tokens.bpe import cache_path

        with contextlib.suppress(OSError):
            cached = cache_path(resumed.corpus()["sha256"], int(match[1]))
            write_atomically(cached, json.dumps(own).encode())
    elif resumed and own != tokenizer:
        raise ConfigError(
            f"data.tokens: {path!r} has changed since {resumed.path} was trained with it: restore it"
        )
    return values | {"data.tokens": path}


def _path(tokens: str) -> Path | str:
    """The absolute path of a tokenizer, or its name on the Hub."""
    with contextlib.suppress(
        OSError, RuntimeError
    ):  # RuntimeError: ~unknown_user, a loop of links
        path = Path(tokens).expanduser().resolve()
        if path.exists():
            return path
    if HUB_NAME.fullmatch(tokens) and not tokens.endswith(".json"):
        return tokens
    hint = did_you_mean(tokens, (CHARACTERS, BYTES, "bpe:8192"))
    hint = hint or (
        ": give characters, bytes, bpe:N, the path of a tokenizer.json or of its folder, or"
        " OWNER/NAME on the Hub"
    )
    raise ConfigError(f"data.tokens: found no file {tokens!r}{hint}")


def inherited(run: RunFolder, overridden: dict[str, Any]) -> dict[str, Any]:
    """The keys by which a new run gets all tokens of another one, whose weights it starts with."""
    vocabulary = run.vocabulary()
    kind = vocabulary.get("tokens")
    tokens = overridden.get("data.tokens")
    if kind == CUSTOM:
        return {}  # its config has the reference
    if kind == BYTES or "tokenizer" in vocabulary:
        own = BYTES if kind == BYTES else str(run.vocabulary_path.resolve())
        own = kept_keys(run).get("data.tokens", own)
        return {"data.tokens": tokens or own}
    if tokens not in (None, CHARACTERS):
        raise ConfigError(
            f"data.tokens={tokens} differs from the tokens of {run.path.name}:"
            " its weights are for characters"
        )
    characters = [
        *vocabulary["characters"],
        *overridden.get("data.extra_characters", ""),
    ]
    return {"data.extra_characters": "".join(sorted(set(characters)))}
