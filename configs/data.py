"""The text, its vocabulary, and the windows drawn from it."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from labml.configs import option

from configs.branch import Branch, derived_seed, is_reference
from configs.keys import ConfigError, Key, Share
from data.tokens import CHARACTERS

if TYPE_CHECKING:
    import torch

    from data.corpus import Corpus
    from data.protocol import ValidationSet
    from data.text.stored import StoredTokens
    from data.vocabulary import Vocabulary
    from data.windows import Windows
    from data.windows.prefetch import Prefetched

announce = partial(print, flush=True)  # a log shows at once why a run does not begin


class DataConfigs(Branch):
    """Keys `data.*`, and what is computed from them."""

    corpus: Annotated[
        str,
        Key(
            "auto, tiny_shakespeare, play, the path of a file or folder, hf:NAME; or file.py:name",
            resume=True,
            reference=True,
        ),
    ] = "auto"
    column: Annotated[
        str,
        Key(
            "the field of JSON, CSV or Parquet to read, such as meta.body; empty: text"
        ),
    ] = ""
    documents: Annotated[
        Literal["auto", "files", "rows", "lines", "paragraphs"],
        Key("auto: files and rows; or the lines or paragraphs of each"),
    ] = "auto"
    raw: Annotated[bool, Key("read JSON, CSV, HTML and XML as they are")] = False
    validation: Annotated[
        str,
        Key(
            "the path of your own validation text; empty: a tenth of data.corpus",
            resume=True,
        ),
    ] = ""
    sampling: Annotated[
        Literal["random", "shuffled"], Key("random: anywhere; shuffled: in epochs")
    ] = "random"
    windows: Annotated[
        Literal["auto", "packed", "anywhere"],
        Key("packed: pieces of documents; anywhere: across them; auto: packed if any"),
    ] = "auto"
    weights: Annotated[
        list,
        Key(
            "shares of the windows by folder, such as [books: 2, code: 1]; empty: by size"
        ),
    ] = []
    tokens: Annotated[
        str,
        Key(
            "characters, bytes, bpe:N, a tokenizer.json or its folder, OWNER/NAME on the Hub,"
            " or file.py:name",
            reference=True,
        ),
    ] = "characters"
    batches: Annotated[
        str,
        Key(
            "your own source of batches, file.py:name; empty: masked windows",
            reference=True,
        ),
    ] = ""
    unknown_below: Annotated[
        float, Share("characters rarer than this share become [UNK]")
    ] = 0.0
    extra_characters: Annotated[
        str,
        Key("characters to add to the vocabulary; --init-from adds those of its run"),
    ] = ""

    extend_vocabulary: Annotated[
        int,
        Key("pieces of the text to add to those of a checkpoint", low=0, high=100_000),
    ] = 0

    loaded: "Corpus"
    vocabulary: "Vocabulary"
    stored_tokens: "StoredTokens | None"
    training_ids: "torch.Tensor"
    validation_ids: "torch.Tensor"
    counts: "tuple[torch.Tensor, torch.Tensor]"
    is_packed: bool  # whether the training windows are
    training_windows: "Windows | Prefetched"
    validation_set: "ValidationSet"


@option(DataConfigs.loaded)
def corpus(c: DataConfigs) -> "Corpus":
    from data.corpus import TINY_SHAKESPEARE, load_corpus
    from data.play.grammar import PLAY
    from data.text.sources import Reading

    has_no_path = c.corpus in ("auto", TINY_SHAKESPEARE, PLAY) or is_reference(c.corpus)
    if c.validation and has_no_path:
        raise ConfigError(
            f"data.validation: data.corpus={c.corpus} is no path of a text"
        )
    if is_reference(c.corpus):
        from configs.own_code import own_corpus

        return own_corpus(c.corpus)
    reading = Reading(c.column, c.documents, c.raw)
    return load_corpus(c.corpus, announce, reading, c.validation)


@option(DataConfigs.vocabulary)
def vocabulary(c: DataConfigs) -> "Vocabulary":
    from data.vocabulary import CLS, SEP, characters_of

    special_tokens: tuple[str, ...] = ()
    if c.root().objective.pairs:
        special_tokens = (CLS, SEP)
    elif c.loaded.has_documents:
        special_tokens = (SEP,)
    if c.tokens == CHARACTERS and not c.unknown_below:
        return characters_of(c.loaded.counts, c.extra_characters, 0.0, special_tokens)
    from configs.vocabularies import other_vocabulary

    return other_vocabulary(c, special_tokens, announce)


@option(DataConfigs.stored_tokens)
def stored_tokens(c: DataConfigs) -> "StoredTokens | None":
    """The token ids of a text that stays on the disk; None if the text is in memory."""
    return c.loaded.stored.tokenized(c.vocabulary) if c.loaded.stored else None


@option([DataConfigs.training_ids, DataConfigs.validation_ids])
def token_ids(c: DataConfigs) -> "tuple[torch.Tensor, ...]":
    """Both parts of the text as token ids `[n_tokens]`, on the device for the whole run; or
    memory-mapped."""
    if c.stored_tokens:
        return c.stored_tokens.training.ids, c.stored_tokens.validation.ids
    device = c.root().torch_device
    training = c.vocabulary.encode(c.loaded.training).to(device)
    return training, c.vocabulary.encode(c.loaded.validation).to(device)


@option(DataConfigs.counts)
def counts(c: DataConfigs) -> "tuple[torch.Tensor, torch.Tensor]":
    """How often each token occurs in the training and in the validation text, `[n_ids_in_text]`
    each."""
    n = c.vocabulary.n_ids_in_text
    if c.stored_tokens:
        stored = c.stored_tokens
        return stored.training.counts[:n], stored.validation.counts[:n]
    training = c.training_ids.cpu().bincount(minlength=n)
    return training, c.validation_ids.cpu().bincount(minlength=n)


@option(DataConfigs.is_packed)
def is_packed(c: DataConfigs) -> bool:
    pairs = c.root().objective.pairs
    if pairs and c.loaded.has_documents and c.windows != "anywhere":
        raise ConfigError(
            f"objective.{pairs}: its pairs cross the borders of documents: set"
            " data.windows=anywhere if they may"
        )
    if c.windows == "auto":
        return c.loaded.has_documents and c.sampling == "random"
    if c.windows == "packed" and not c.loaded.has_documents:
        raise ConfigError(
            "data.windows=packed: the text has no documents: set data.documents=lines"
            " or paragraphs, or leave out data.windows"
        )
    return c.windows == "packed"


@option(DataConfigs.training_windows)
def training_windows(c: DataConfigs) -> "Windows | Prefetched":
    root = c.root()
    longest = max(row["seq_len"] for row in root.training.stages)
    n_tokens = len(c.training_ids)
    if n_tokens <= longest:
        raise ConfigError(
            f"the training text has {n_tokens:,} {c.vocabulary.tokens}, too few for windows of"
            f" {longest:,}: shorten training.stages or take a longer text"
        )
    seed = derived_seed(root.seed, "windows")
    if c.stored_tokens or c.weights or root.objective.pairs or c.sampling == "shuffled":
        from configs.windows import windows_of

        return windows_of(root, longest, seed)

    from data.windows import Windows

    return Windows(c.training_ids, seed=seed)


@option(DataConfigs.validation_set)
def validation_set(c: DataConfigs) -> "ValidationSet":
    from data.protocol import WINDOW_LEN

    return validation_windows(c, WINDOW_LEN)


def validation_windows(c: DataConfigs, window_len: int) -> "ValidationSet":
    """The validation part in windows of a length."""
    device = c.root().torch_device
    if c.stored_tokens and c.loaded.has_documents:
        from data.document_protocol import validation_set_of_documents

        return validation_set_of_documents(
            c.validation_ids,
            c.stored_tokens.validation_documents,
            n_ordinary=c.vocabulary.n_ordinary,
            padding_token=c.vocabulary.padding_token,
            device=device,
            window_len=window_len,
        )
    from data.protocol import validation_set

    unknown = c.vocabulary.unknown_token
    return validation_set(c.validation_ids, unknown, device, window_len)
