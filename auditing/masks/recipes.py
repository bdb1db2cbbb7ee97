"""Published masking recipes: their rates, shares, and the dependences that they have."""

import math
from dataclasses import dataclass

import numpy as np

from auditing.masks.battery import Pair
from auditing.masks.table import Table
from auditing.statistics import Share, share_of

Shares = tuple[float, float, float]  # of [MASK], random and unchanged among the selected positions
Pairs = frozenset[tuple[str, str]]  # of an outcome and a circumstance
# The ends of windows and special tokens cut spans and words.
SPANS: Pairs = frozenset(
    {(outcome, "neighbors") for outcome in ("selected", "kind", "replacement")}
    | {("selected", name) for name in ("position", "token before", "token after", "special")}
)
WORDS: Pairs = SPANS | {("selected", "id")}  # pieces of long words
RATES: Pairs = frozenset({("selected", "window"), ("selected", "row")})  # a stratified draw gives each row its part
BATCHES: Pairs = RATES | {("selected", "batch")}
FREQUENCY: Pairs = frozenset({("selected", "id"), ("replacement", "id")})


@dataclass(frozen=True)
class Recipe:
    """A masking recipe. `rate` None: a new rate for every window."""

    name: str
    rate: float | None
    shares: Shares
    unit: str  # token, span or word
    paper: str
    depends: Pairs = frozenset()


BERT_SHARES = (0.8, 0.1, 0.1)
RECIPES = (
    Recipe("BERT", 0.15, BERT_SHARES, "token", "Devlin et al. 2018"),
    Recipe("SpanBERT", 0.15, BERT_SHARES, "span", "Joshi et al. 2020", SPANS),
    Recipe("whole-word", 0.15, BERT_SHARES, "word", "BERT's release of 2019; Cui et al. 2019", WORDS),
    Recipe("ModernBERT", 0.30, BERT_SHARES, "token", "Warner et al. 2024"),
    Recipe("40%", 0.40, BERT_SHARES, "token", "Wettig et al. 2023"),
    Recipe("ELECTRA's code", 0.15, (0.85, 0.0, 0.15), "token", "Clark et al. 2020, released code"),
    Recipe("[MASK] only", 0.15, (1.0, 0.0, 0.0), "token", "Wettig et al. 2023"),
    Recipe("[MASK] only, whole words", 0.15, (1.0, 0.0, 0.0), "word", "Transformers' whole_word_mask", WORDS),
    Recipe("[MASK] only, spans", 0.15, (1.0, 0.0, 0.0), "span", "as SpanBERT", SPANS),
    Recipe("[MASK] only, 30%", 0.30, (1.0, 0.0, 0.0), "token", "after Wettig et al. 2023"),
    Recipe("masked diffusion", None, (1.0, 0.0, 0.0), "token", "Chang et al. 2022; Sahoo et al. 2024", RATES),
    Recipe("rates per window", None, BERT_SHARES, "token", "masked diffusion with BERT's shares", RATES),
    Recipe("rates per batch", None, (1.0, 0.0, 0.0), "batch", "masked diffusion, a rate per call", BATCHES),
    Recipe("frequency", 0.15, BERT_SHARES, "id", "tokens by their frequency", FREQUENCY),
)
NAMES = {"roberta": "BERT", "mosaicbert": "ModernBERT", "maskgit": "masked diffusion", "mdlm": "masked diffusion"}
OTHERS = dict.fromkeys(
    ("bart", "t5", "ul2", "mass", "pegasus"),
    "is denoising, whose inputs and labels are different texts: `masks` audits masked-language modeling only",
) | {"electra": "labels replaced tokens with 0 and 1: audit its generator's masks, with the recipe ELECTRA's code"}


def recipe_named(name: str) -> Recipe:
    """The recipe of a name, in any case; RoBERTa is BERT with new masks every time. Raises ValueError."""
    if name.lower() in OTHERS:
        raise ValueError(f"the recipe {name} {OTHERS[name.lower()]}")
    wanted = NAMES.get(name.lower(), name).lower()
    for recipe in RECIPES:
        if recipe.name.lower() == wanted:
            return recipe
    known = "; ".join([*(recipe.name for recipe in RECIPES), "RoBERTa", "MosaicBERT", "MaskGIT"])
    raise ValueError(f"unknown recipe {name!r}: choose one of {known}")


def nearest_recipe(rate: float, shares: Shares, unit: str, varies: bool) -> Recipe:
    """The recipe with the smallest distance: the sum of differences in shares, half the log ratio of the rates, and
    0.15 for another unit."""

    def distance(recipe: Recipe) -> float:
        apart = sum(abs(one - other) for one, other in zip(shares, recipe.shares, strict=True))
        other_unit = 0.15 if recipe.unit != unit else 0.0
        if (recipe.rate is None) != varies:
            return apart + other_unit + 0.5
        log_ratio = abs(math.log(max(rate, 1e-6) / recipe.rate)) / 2 if recipe.rate is not None else 0.0
        return apart + other_unit + log_ratio

    return min(RECIPES, key=distance)


# Shares that bugs produce from BERT's 80/10/10, and their names in the catalogue.
SIGNATURES: tuple[tuple[Shares, str], ...] = (
    ((0.81, 0.10, 0.09), "overlapping-draws"),
    ((0.81, 0.09, 0.10), "overlapping-draws"),
    ((0.72, 0.10, 0.18), "overlapping-draws"),
    ((0.80, 0.02, 0.18), "random-share"),
    ((0.80, 0.18, 0.02), "random-share"),
    ((0.90, 0.00, 0.10), "random-overwritten"),
    ((0.90, 0.01, 0.09), "random-overwritten"),
    ((0.80, 0.00, 0.20), "never-random"),
    ((8 / 9, 1 / 9, 0.00), "kept-without-label"),
)


@dataclass(frozen=True)
class Structure:
    """The statistics of the selected positions."""

    rate: Share  # selected among ordinary tokens
    parts: tuple[Share, Share, Share]  # of [MASK], random and unchanged among the selected
    mean_run: float
    counts: np.ndarray  # [n_windows] labels per window
    independent_variance: float  # of as many independent positions
    whole_words: float | None  # the share of words of several tokens that are selected as a whole, if they are at all
    is_clustered: bool  # whether neighbors are selected together
    varies: bool  # whether each window has its own rate

    @property
    def shares(self) -> Shares:
        masked, random, kept = (part.value for part in self.parts)
        return masked, random, kept

    @property
    def unit(self) -> str:
        """token, span or word."""
        if self.whole_words is not None and self.whole_words > 0.5:
            return "word"
        return "span" if self.is_clustered else "token"

    @property
    def is_fixed(self) -> bool:
        """Whether every window has the same number of labels."""
        return bool(self.counts.var() < 1e-9)


def structure_of(table: Table, pairs: list[Pair]) -> Structure:
    """The structure of the main text, given what its battery found."""
    selected, eligible = table.selected, table.eligible
    rate = share_of(table.per_call(selected), table.per_call(eligible))
    totals = table.per_call(selected)
    masked, random, kept = (
        share_of(table.per_call(part), totals) for part in (table.masked, table.randomized, table.kept)
    )
    counts, sizes = table.per_window(selected), table.per_window(eligible)
    independent = float((sizes * rate.value * (1 - rate.value)).mean())
    found = {pair.circumstance: pair.found for pair in pairs if pair.outcome == "selected" and pair.is_found}
    near, window = found.get("neighbors"), found.get("window")
    runs = selected & ~np.pad(selected, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    words = word_counts(table)
    whole = None
    if words is not None and (words[1] > 0).any():
        whole = float((words[1] == words[0])[words[1] > 0].mean())
    return Structure(
        rate,
        (masked, random, kept),
        float(selected.sum() / max(1, runs.sum())),
        counts,
        independent,
        whole,
        near is not None and near.shares[0] > near.mean,
        window is not None and window.shares[0] > 0 and counts.var() > 3 * independent,
    )


def word_counts(table: Table) -> tuple[np.ndarray, np.ndarray] | None:
    """For every word of several tokens: its tokens, and how many of them are selected. None if words are unknown."""
    if table.words is None or not (table.words >= 0).any():
        return None
    width = int(table.words.max()) + 1
    window = np.arange(table.words.shape[0] * table.words.shape[1]).reshape(*table.words.shape[:2], 1)
    where = (table.words >= 0) & table.eligible
    numbers = (window * width + table.words)[where]
    sizes = np.bincount(numbers)
    chosen = np.bincount(numbers, weights=table.selected[where]).astype(np.int64)
    return sizes[sizes > 1], chosen[sizes > 1]
