"""The text, its vocabulary, and the windows drawn from it."""

from functools import partial
from typing import Annotated

import torch
from labml.configs import BaseConfigs, option

from configs.keys import Key
from configs.seeds import derived_seed
from data.corpus import Corpus, CorpusError, load_corpus
from data.documents import DocumentWindows
from data.pairs import CLS, SEP, PairWindows, speech_borders
from data.prefetch import Prefetched
from data.protocol import SEED, WINDOW_LEN, ValidationSet, validation_set
from data.stored import StoredIds, StoredTokens
from data.vocabularies import CHARACTERS, characters_of, vocabulary_of
from data.vocabulary import Vocabulary
from data.windows import Pairs, WindowBatch, Windows

VALIDATION_PAIRS = 1_024
announce = partial(print, flush=True)  # a log shows at once why a run does not begin
MEMORY = 500_000_000  # bytes that one key may need for a text that stays on the disk


class DataConfigs(BaseConfigs):
    """Keys `data.*`."""

    corpus: Annotated[
        str, Key("auto, tiny_shakespeare, play (built in), or the path of a UTF-8 text: a file or a folder")
    ] = "auto"
    sampling: Annotated[
        str,
        Key("random: windows anywhere; shuffled: each part of the text once per epoch", choices=("random", "shuffled")),
    ] = "random"
    within_documents: Annotated[
        bool, Key("no window crosses the border of two documents: files, or rows of Parquet")
    ] = False
    tokens: Annotated[
        str, Key("characters, bytes, bpe:N (N tokens learned from the text), or the path of a tokenizer.json")
    ] = "characters"
    unknown_below: Annotated[
        float, Key("characters whose share of the text is below this become [UNK], never a target", low=0, high=1)
    ] = 0.0
    extra_characters: Annotated[str, Key("characters to add to the vocabulary; --init-from adds those of its run")] = ""

    # Set by configs/experiment.py.
    device: torch.device
    seed: int
    longest: int  # the greatest seq_len of all stages
    shortest: int  # the least
    pairs: str  # the objective on pairs of text, nsp or sop; empty without one

    loaded: Corpus = "load"  # type: ignore[assignment]
    vocabulary: Vocabulary = "by_tokens"  # type: ignore[assignment]
    stored_tokens: StoredTokens | None = "convert"  # type: ignore[assignment]
    training_ids: torch.Tensor = "encode_training"  # type: ignore[assignment]
    validation_ids: torch.Tensor = "encode_validation"  # type: ignore[assignment]
    counts: tuple[torch.Tensor, torch.Tensor] = "of_both_parts"  # type: ignore[assignment]
    windows: Windows | Prefetched = "training_windows"  # type: ignore[assignment]
    validation: ValidationSet = "by_protocol"  # type: ignore[assignment]
    validation_pairs: WindowBatch | None = "held_out_pairs"  # type: ignore[assignment]


@option(DataConfigs.loaded)
def load(c: DataConfigs) -> Corpus:
    return load_corpus(c.corpus, announce)


@option(DataConfigs.vocabulary)
def by_tokens(c: DataConfigs) -> Vocabulary:
    further = (CLS, SEP) if c.pairs else ()
    if c.tokens == CHARACTERS:
        return characters_of(c.loaded, c.extra_characters, c.unknown_below, further)
    return vocabulary_of(c.tokens, c.loaded, further, announce)


@option(DataConfigs.stored_tokens)
def convert(c: DataConfigs) -> StoredTokens | None:
    """The token ids of a text that stays on the disk."""
    return c.loaded.stored.tokenized(c.vocabulary) if c.loaded.stored else None


@option(DataConfigs.training_ids)
def encode_training(c: DataConfigs) -> torch.Tensor:
    """The training text as token ids `[n_training_tokens]`, on the device for the whole run; or memory-mapped."""
    if c.stored_tokens:
        return c.stored_tokens.training.ids
    return c.vocabulary.encode(c.loaded.training).to(c.device)


@option(DataConfigs.validation_ids)
def encode_validation(c: DataConfigs) -> torch.Tensor:
    """The validation text as token ids `[n_validation_tokens]`, on the device; or memory-mapped."""
    if c.stored_tokens:
        return c.stored_tokens.validation.ids
    return c.vocabulary.encode(c.loaded.validation).to(c.device)


@option(DataConfigs.counts)
def of_both_parts(c: DataConfigs) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each token occurs in the training and in the validation text, `[n_ids_in_text]` each."""
    if c.stored_tokens:
        return c.stored_tokens.training.counts, c.stored_tokens.validation.counts
    n = c.vocabulary.n_ids_in_text
    training, validation = (ids.cpu().bincount(minlength=n) for ids in (c.training_ids, c.validation_ids))
    return training, validation


@option(DataConfigs.validation)
def by_protocol(c: DataConfigs) -> ValidationSet:
    return validation_set(c.validation_ids, c.vocabulary.lengths, c.vocabulary.unknown_token, c.device)


@option(DataConfigs.windows)
def training_windows(c: DataConfigs) -> Windows | Prefetched:
    if len(c.training_ids) <= c.longest:
        raise CorpusError(
            f"the training text has {len(c.training_ids):,} {c.vocabulary.tokens}, too few for windows of"
            f" {c.longest:,}: shorten training.stages or take a longer text"
        )
    seed = derived_seed(c.seed, "windows")
    if c.stored_tokens:
        _check_memory(c)
    ids = c.stored_tokens.training if c.stored_tokens else c.training_ids
    if c.pairs:
        windows: Windows = _pairs(c, ids, c.loaded.training, seed, c.longest)
    elif (documents := _documents(c)) is not None:
        windows = DocumentWindows(ids, documents, seed=seed)
    else:
        windows = Windows(ids, seed=seed, sampling=c.sampling)
    return Prefetched(windows, c.device) if c.stored_tokens else windows


def _check_memory(c: DataConfigs) -> None:
    """Raise CorpusError if a key would need too much memory for a text that stays on the disk."""
    needed = 16 * len(c.training_ids) // c.shortest
    if c.sampling == "shuffled" and needed > MEMORY:
        raise CorpusError(f"data.sampling=shuffled needs {needed / 1e9:,.1f} GB of memory for this text: use random")
    if c.pairs == "nsp" and c.loaded.is_sample:
        raise CorpusError("objective.nsp needs all speeches in memory, and this text is too large for that: use sop")


def _documents(c: DataConfigs) -> torch.Tensor | None:
    if not c.within_documents or not c.stored_tokens:
        return None
    documents = c.stored_tokens.documents
    longest = int(documents.diff(prepend=documents.new_zeros(1)).max())
    if longest < c.longest:
        raise CorpusError(
            f"data.within_documents=true: the longest document has {longest:,} {c.vocabulary.tokens}, too few for"
            f" windows of {c.longest:,}: shorten training.stages"
        )
    return documents


@option(DataConfigs.validation_pairs)
def held_out_pairs(c: DataConfigs) -> WindowBatch | None:
    """Pairs of the validation text, the same for every run on every device."""
    if not c.pairs:
        return None
    ids = c.stored_tokens.validation if c.stored_tokens else c.validation_ids.cpu()
    source = _pairs(c, ids, c.loaded.validation, SEED, WINDOW_LEN)
    batch = source.draw(VALIDATION_PAIRS, WINDOW_LEN)
    assert batch.pairs is not None
    pairs = Pairs(*(part.to(c.device) for part in batch.pairs))
    return WindowBatch(batch.tokens.to(c.device), batch.offsets, pairs)


def _pairs(c: DataConfigs, ids: torch.Tensor | StoredIds, text: str, seed: int, longest: int) -> PairWindows:
    return PairWindows(
        ids,
        _borders(c, ids, text) if c.pairs == "nsp" else torch.empty(0, dtype=torch.int64),
        objective=c.pairs,
        cls_token=c.vocabulary.id_of(CLS),
        sep_token=c.vocabulary.id_of(SEP),
        seed=seed,
        longest=longest,
    )


def _borders(c: DataConfigs, ids: torch.Tensor | StoredIds, text: str) -> torch.Tensor:
    """The tokens at which speeches begin."""
    text, offsets = c.vocabulary.text_of(ids.ids if isinstance(ids, StoredIds) else ids, text)
    borders = speech_borders(text)
    if offsets is None:
        return borders
    borders = torch.searchsorted(offsets, borders).unique()
    return borders[borders < len(ids)]
