"""Published masking recipes of recipes.toml, and the structure of a masker's selection, which tells
them apart."""

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auditing.masks.pairs import Pair
from auditing.masks.table import Table, shifted
from auditing.statistics import Share

Shares = tuple[float, float, float]  # of [MASK], random and unchanged among the selected positions


@dataclass(frozen=True)
class Recipe:
    """A masking recipe. `rate` None: a new rate for every window."""

    name: str
    paper: str
    rate: float | None = None
    shares: Shares = (0.8, 0.1, 0.1)
    unit: str = "token"  # or span, word, batch, id
    depends: dict[str, list[str]] = field(default_factory=dict)  # the circumstances by outcome


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RECIPES = tuple(Recipe(name, **entry) for name, entry in TABLE.items())
SYNONYMS = {
    "roberta": "BERT",
    "mosaicbert": "ModernBERT",
    "maskgit": "masked diffusion",
    "mdlm": "masked diffusion",
}
REFUSED = dict.fromkeys(
    ("bart", "t5", "ul2", "mass"), "is denoising, whose inputs and labels are different texts"
)
REFUSED["electra"] = (
    "labels replaced tokens with 0 and 1: audit its generator, with the recipe ELECTRA's code"
)


def recipe_named(name: str) -> Recipe:
    """The recipe of a name, in any case; RoBERTa is BERT with new masks every time. Raises
    ValueError."""
    if name.lower() in REFUSED:
        raise ValueError(f"{name} {REFUSED[name.lower()]}; `masks` audits masked language modeling")
    wanted = SYNONYMS.get(name.lower(), name).lower()
    for recipe in RECIPES:
        if recipe.name.lower() == wanted:
            return recipe
    known = "; ".join([*(recipe.name for recipe in RECIPES), "RoBERTa", "MosaicBERT", "MaskGIT"])
    raise ValueError(f"unknown recipe {name!r}: choose one of {known}")


def distance(one: Shares, other: Shares) -> float:
    """The sum of differences of shares."""
    return sum(abs(each - another) for each, another in zip(one, other, strict=True))


def nearest_recipe(rate: float, shares: Shares, unit: str, varies: bool) -> Recipe:
    """The recipe with the smallest distance: the sum of differences in shares, half the log ratio
    of the rates, and 0.15 for another unit."""

    def apart(recipe: Recipe) -> float:
        apart = (
            distance(shares, recipe.shares)
            + 0.15 * (recipe.unit != unit)
            + 0.5 * ((recipe.rate is None) != varies)
        )
        return apart + (
            abs(math.log(max(rate, 1e-6) / recipe.rate)) / 2 if recipe.rate and not varies else 0.0
        )

    return min(RECIPES, key=apart)


class Structure:
    """The statistics of the selected positions of the main text, given what its battery found."""

    def __init__(self, table: Table, pairs: list[Pair]):
        selected, totals = table.selected, table.selected.sum((1, 2))
        self.rate = Share(totals, table.eligible.sum((1, 2)))  # selected among ordinary tokens
        # The shares of [MASK], random and unchanged tokens among the selected.
        self.parts = [
            Share(part.sum((1, 2)), totals) for part in (table.masked, table.randomized, table.kept)
        ]
        masked, random, kept = (part.value for part in self.parts)
        self.shares: Shares = masked, random, kept
        runs = selected & ~shifted(selected, 1, False)
        self.mean_run = float(selected.sum() / max(1, runs.sum()))
        self.counts = table.per_window(selected)  # [n_windows] labels per window
        self.is_fixed = bool(self.counts.var() < 1e-9)  # every window has the same number of labels
        # The variance of the counts if positions were independent.
        self.independent_variance = (
            self.rate.value * (1 - self.rate.value) * table.per_window(table.eligible).mean()
        )
        found = {
            pair.circumstance: pair.found
            for pair in pairs
            if pair.outcome == "selected" and pair.is_found
        }
        near = found.get("neighbors")
        self.is_clustered = (
            near is not None and near.shares[0] > near.mean
        )  # neighbors are selected together
        # Each window has its own rate.
        self.varies = "window" in found and self.counts.var() > 3 * self.independent_variance
        self.words = sizes, chosen = words_of(table)
        # The share of words of several tokens that are selected as a whole, among those that are at
        # all.
        self.whole_words = float((chosen == sizes)[chosen > 0].mean()) if chosen.any() else 0.0
        self.unit = "word" if self.whole_words > 0.5 else "span" if self.is_clustered else "token"


def words_of(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """The sizes of words of several tokens, and how many of these are selected; empty if words are
    unknown."""
    if table.words is None:
        return np.zeros(0), np.zeros(0)
    where = (table.words >= 0) & table.eligible
    n_rows, width = table.words.shape[1], int(table.words.max()) + 1
    windows = np.arange(len(table.words) * n_rows).reshape(-1, n_rows, 1)
    numbers = (windows * width + table.words)[where]
    sizes, chosen = np.bincount(numbers), np.bincount(numbers, table.selected[where]).astype(int)
    return sizes[sizes > 1], chosen[sizes > 1]
