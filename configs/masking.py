"""Which characters are hidden from the model, and what replaces them."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from labml.configs import BaseConfigs, option

from configs.data import MEMORY
from configs.keys import ConfigError, Key, shortened
from configs.rows import check_untils, is_number
from configs.seeds import derived_seed
from data.corpus import Corpus
from data.masking import Corruption, IndependentMasker, Masker
from data.masking.changing_units import Mixture
from data.masking.segmenters import Segmenter
from data.masking.strategies import STRATEGIES, Strategy
from data.masking.token_units import for_stored_text, on_tokens
from data.vocabulary import MASK, PAD, Vocabulary
from distributed.processes import n_started

BYTES_PER_STATIC_MASK = 12  # three draws of float32


class MaskingConfigs(BaseConfigs):
    """Keys `masking.*`. `strategy` is computed to the masker that its name selects."""

    strategy: Annotated[Any, Key("how characters are selected for masking")] = "random"
    masking_prob: Annotated[float, Key("share of the characters that are selected", above=0, high=1)] = 0.15
    randomize_prob: Annotated[float, Key("share of the selected that a random character replaces", low=0, high=1)] = 0.1
    no_change_prob: Annotated[float, Key("share of the selected that stay unchanged", low=0, high=1)] = 0.1
    random_tokens: Annotated[
        str,
        Key("random characters; unigram: as frequent as in the training text", choices=("uniform", "unigram")),
    ] = "uniform"
    masks: Annotated[
        str,
        Key("dynamic: new masks each time (RoBERTa); static: drawn once (BERT)", choices=("dynamic", "static")),
    ] = "dynamic"
    corrupt: Annotated[
        str,
        Key("corrupt each character on its own, or each unit as a whole (SpanBERT)", choices=("character", "unit")),
    ] = "character"
    mixture: Annotated[
        list,
        Key("for strategy=mixture: rows {until: share of the budget, STRATEGY: relative share of the windows, ...}"),
    ] = []
    no_mask_tokens: Annotated[str, Key("characters that are never selected, without separators")] = ""

    # From the experiment: see configs/experiment.py.
    device: torch.device
    seed: int
    vocabulary: Vocabulary
    training_ids: torch.Tensor
    counts: tuple[torch.Tensor, torch.Tensor]
    corpus: Corpus


def check_masking(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if keys of `masking.*` contradict each other or the stages."""
    if values["masking.randomize_prob"] + values["masking.no_change_prob"] > 1:
        raise ConfigError(
            "masking.randomize_prob + masking.no_change_prob is above 1: both are shares of the selected characters"
        )
    strategy = values["masking.strategy"]
    if strategy == "labml_nn":
        _check_labml_nn(values)
    if strategy == "mixture":
        _check_mixture(values["masking.mixture"])
    elif values["masking.mixture"]:
        raise ConfigError(f"masking.mixture requires masking.strategy=mixture (now {strategy})")


def _check_labml_nn(values: Mapping[str, Any]) -> None:
    if values["training.compile"]:
        raise ConfigError("masking.strategy=labml_nn changes its shapes every step: set training.compile=false")
    if n_started() > 1:
        raise ConfigError("masking.strategy=labml_nn draws masks that processes cannot share: use random")
    only = {"masking.random_tokens": "uniform", "masking.masks": "dynamic", "masking.corrupt": "character"}
    for key, value in only.items():
        if values[key] != value:
            raise ConfigError(f"{key}={values[key]}: masking.strategy=labml_nn supports {value} only")
    rate = values["masking.masking_prob"]
    if any(row.get("masking_prob", rate) != rate for row in values["training.stages"]):
        raise ConfigError("training.stages: masking.strategy=labml_nn has a single masking rate, masking.masking_prob")


def _check_mixture(rows: list[Any]) -> None:
    example = "{until: 1.0, random: 0.5, span: 0.5}"
    if not rows:
        raise ConfigError(f"masking.strategy=mixture needs masking.mixture, such as [{example}]")
    for number, row in enumerate(rows, start=1):
        where = f"masking.mixture, row {number}"
        if not isinstance(row, dict) or not is_number(row.get("until")):
            raise ConfigError(f"{where} is not of the form {example}")
        for name, share in row.items():
            if name != "until" and name not in STRATEGIES:
                raise ConfigError(
                    f"{where}: unknown strategy {shortened(name)!r}: choose among {', '.join(STRATEGIES)}"
                )
            if not is_number(share) or not 0 <= share <= 1e6:
                raise ConfigError(f"{where}: {shortened(name)}={shortened(share)} must be a number of at least 0")
        if not sum(share for name, share in row.items() if name != "until") > 0:
            raise ConfigError(f"{where}: the shares must not all be 0")
    check_untils("masking.mixture", [row["until"] for row in rows])


def _no_mask_ids(c: MaskingConfigs) -> list[int]:
    """The ids that are never selected: special tokens in the text, and the characters of `no_mask_tokens`."""
    unknown = set(c.no_mask_tokens) - set(c.vocabulary.ordinary)
    if unknown:
        raise ConfigError(f"masking.no_mask_tokens: {sorted(unknown)[0]!r} is not in the corpus")
    special = [token for token in c.vocabulary.special_tokens if token not in (PAD, MASK)]
    return [c.vocabulary.id_of(token) for token in (*special, *c.no_mask_tokens)]


def _random_token_weights(c: MaskingConfigs) -> torch.Tensor:
    """`[n_tokens]`, 0 for special tokens, those that are never selected, and those that the text does not have."""
    weights = torch.zeros(c.vocabulary.n_tokens)
    n_ordinary = c.vocabulary.n_ordinary
    training, validation = (counts[:n_ordinary] for counts in c.counts)
    weights[:n_ordinary] = training.float() if c.random_tokens == "unigram" else (training + validation > 0).float()
    weights[_no_mask_ids(c)] = 0.0
    if not weights.any():
        raise ConfigError("masking.no_mask_tokens leaves no character to mask")
    return weights


def build_masker(c: MaskingConfigs, segmenter: Segmenter) -> Masker:
    """The masker that the keys ask for, with any segmenter."""
    static = c.masks == "static"
    if static and not segmenter.allows_static_masks:
        raise ConfigError("masking.masks=static: this masking.strategy draws units or weights anew; use dynamic")
    needed = BYTES_PER_STATIC_MASK * len(c.training_ids)
    if c.corpus.stored and static and needed > MEMORY:
        raise ConfigError(f"masking.masks=static needs {needed / 1e9:,.1f} GB of memory for this text: use dynamic")
    corruption = Corruption(
        mask_token=c.vocabulary.mask_token,
        random_token_weights=_random_token_weights(c),
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return Masker(
        corruption,
        segmenter=segmenter,
        seed=derived_seed(c.seed, "masks"),
        device=c.device,
        no_mask_tokens=_no_mask_ids(c),
        static_text_len=len(c.training_ids) if static else 0,
        corrupt_units=c.corrupt == "unit",
    )


def segmented(c: MaskingConfigs, strategy: Strategy) -> Segmenter:
    """The segmenter of a strategy for the tokens of the training text."""
    if c.corpus.is_sample:
        return for_stored_text(strategy(c.corpus.training), c.training_ids, c.vocabulary)
    text, offsets = c.vocabulary.text_of(c.training_ids, c.corpus.training)
    return strategy(text) if offsets is None else on_tokens(strategy(text), offsets)


def register(name: str) -> None:
    """Make a strategy of STRATEGIES an option of `masking.strategy`."""

    def masker(c: MaskingConfigs) -> Masker:
        return build_masker(c, segmented(c, STRATEGIES[name]))

    option(MaskingConfigs.strategy, name)(masker)


for _name in STRATEGIES:  # the functions of data/masking/strategies.py with @strategy above them
    register(_name)


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> Masker:
    """Each window is masked by one of several strategies, according to `masking.mixture`."""
    rows = [(row["until"], {name: share for name, share in row.items() if name != "until"}) for row in c.mixture]
    names = dict.fromkeys(name for _, shares in rows for name in shares)

    def mixed(text: str) -> Segmenter:
        return Mixture({name: STRATEGIES[name](text) for name in names}, rows)

    return build_masker(c, segmented(c, mixed))


@option(MaskingConfigs.strategy)
def labml_nn(c: MaskingConfigs) -> IndependentMasker:
    """labml_nn's own MLM: each position is selected independently, with shares of 81/10/9."""
    from labml_nn.transformers.mlm import MLM

    mlm = MLM(
        padding_token=c.vocabulary.padding_token,
        mask_token=c.vocabulary.mask_token,
        no_mask_tokens=_no_mask_ids(c),
        n_tokens=c.vocabulary.n_tokens,
        masking_prob=c.masking_prob,
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return IndependentMasker(mlm)
