"""Published masking recipes of recipes.toml, and the structure of a masker's selection, which tells
them apart."""

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auditing.masks.pairs import Pair
from auditing.masks.table import Table, shifted
from auditing.statistics import Array, Share

# of [MASK], random and unchanged among the selected positions
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Recipe:
    """A masking recipe. `rate` None: a new rate for every window."""

    name: str
    paper: str
    rate: float | None = None
    shares: Shares = (0.8, 0.1, 0.1)
    unit: str = "token"  # or span, word, batch, id
    # the circumstances by outcome
    depends: dict[str, list[str]] = field(default_factory=dict)


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RECIPES = tuple(Recipe(name, **entry) for name, entry in TABLE.items())
SYNONYMS = {"roberta": "BERT", "mosaicbert": "ModernBERT"}
SYNONYMS |= dict.fromkeys(("maskgit", "mdlm"), "masked diffusion")
DENOISING = "is denoising, whose inputs and labels are different texts"
REFUSED = dict.fromkeys(("bart", "t5", "ul2", "mass"), DENOISING)
REFUSED["electra"] = (
    "labels replaced tokens with 0 and 1: audit its generator, with the recipe ELECTRA's code"
)


def recipe_named(name: str) -> Recipe:
    """The recipe of a name, in any case. RoBERTa is BERT with new masks every time.

    Raises ValueError if the recipe is unknown, or not one of masked language modeling.
    """
    key = name.lower()
    if key in REFUSED:
        raise ValueError(
            f"{name} {REFUSED[key]}; `masks` audits masked language modeling"
        )
    wanted = SYNONYMS.get(key, name).lower()
    for recipe in RECIPES:
        if recipe.name.lower() == wanted:
            return recipe

    known = "; ".join([*TABLE, "RoBERTa", "MosaicBERT", "MaskGIT"])
    raise ValueError(f"unknown recipe {name!r}: choose one of {known}")


def distance(one: Shares, other: Shares) -> float:
    """The sum of differences of shares."""
    return sum(abs(each - another) for each, another in zip(one, other, strict=True))


class Structure:
    """The statistics of the selected positions of the main text, given what its battery found."""

    def __init__(self, table: Table, pairs: list[Pair]):
        selected = table.selected
        totals = selected.sum((1, 2))
        # selected among ordinary tokens
        self.rate = Share(totals, table.eligible.sum((1, 2)))
        # The shares of [MASK], random and unchanged tokens among the selected.
        kinds = (table.masked, table.randomized, table.kept)
        self.parts = [Share(kind.sum((1, 2)), totals) for kind in kinds]
        masked, random, kept = (part.value for part in self.parts)
        self.shares: Shares = (masked, random, kept)
        runs = selected & ~shifted(selected, 1, False)
        self.mean_run = float(selected.sum() / max(1, runs.sum()))
        self.counts = table.per_window(selected)  # [n_windows] labels per window
        # every window has the same number of labels
        self.is_fixed = bool(self.counts.var() < 1e-9)
        # The variance of the counts if positions were independent: within windows of a length, and
        # between lengths.
        rate = self.rate.value
        lengths = table.per_window(table.eligible)
        within = rate * (1 - rate) * lengths.mean()
        self.independent_variance = within + rate**2 * lengths.var()

        dependences = {}
        for pair in pairs:
            if pair.outcome == "selected" and pair.is_found:
                dependences[pair.circumstance] = pair.found

        near = dependences.get("neighbors")
        # Neighbors are selected together.
        self.is_clustered = near is not None and near.shares[0] > near.mean
        # Each window has its own rate.
        is_wide = self.counts.var() > 3 * self.independent_variance
        self.varies = "window" in dependences and is_wide

        self.words = words_of(table)
        sizes, chosen = self.words
        # The share of words of several tokens that are selected as a whole, among those of which
        # any token is selected.
        self.whole_words = (
            float((chosen == sizes)[chosen > 0].mean()) if chosen.any() else 0.0
        )
        self.unit = "span" if self.is_clustered else "token"
        if self.whole_words > 0.5:
            self.unit = "word"


def nearest_recipe(rate: float, shares: Shares, unit: str, varies: bool) -> Recipe:
    """The recipe with the smallest distance: the sum of differences in shares, half the log ratio
    of the rates, and 0.15 for another unit."""

    def apart(recipe: Recipe) -> float:
        sum_of_distances = distance(shares, recipe.shares)
        if recipe.unit != unit:
            sum_of_distances += 0.15
        if (recipe.rate is None) != varies:
            sum_of_distances += 0.5
        if recipe.rate and not varies:
            sum_of_distances += abs(math.log(max(rate, 1e-6) / recipe.rate)) / 2
        return sum_of_distances

    return min(RECIPES, key=apart)


def words_of(table: Table) -> tuple[Array, Array]:
    """The sizes of words of several tokens, and how many of these are selected; empty if words are
    unknown."""
    if table.words is None:
        return np.zeros(0), np.zeros(0)
    where = (table.words >= 0) & table.eligible
    n_calls, n_rows, _ = table.words.shape
    windows = np.arange(n_calls * n_rows).reshape(n_calls, n_rows, 1)
    numbers = (windows * (table.words.max() + 1) + table.words)[where]
    sizes = np.bincount(numbers)
    chosen = np.bincount(numbers, table.selected[where]).astype(int)
    return sizes[sizes > 1], chosen[sizes > 1]
