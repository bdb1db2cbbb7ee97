"""Published masking recipes of recipes.toml, and the structure of a masker's selection, which tells them apart."""

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auditing.masks.battery import Pair
from auditing.masks.table import Table
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
NAMES = {"roberta": "BERT", "mosaicbert": "ModernBERT", "maskgit": "masked diffusion", "mdlm": "masked diffusion"}
OTHERS = dict.fromkeys(("bart", "t5", "ul2", "mass"), "is denoising, whose inputs and labels are different texts")
OTHERS["electra"] = "labels replaced tokens with 0 and 1: audit its generator, with the recipe ELECTRA's code"


def recipe_named(name: str) -> Recipe:
    """The recipe of a name, in any case; RoBERTa is BERT with new masks every time. Raises ValueError."""
    if name.lower() in OTHERS:
        raise ValueError(f"{name} {OTHERS[name.lower()]}; `masks` audits masked language modeling")
    wanted = NAMES.get(name.lower(), name).lower()
    for recipe in RECIPES:
        if recipe.name.lower() == wanted:
            return recipe
    known = "; ".join([*(recipe.name for recipe in RECIPES), "RoBERTa", "MosaicBERT", "MaskGIT"])
    raise ValueError(f"unknown recipe {name!r}: choose one of {known}")


def distance(one: Shares, other: Shares) -> float:
    """The sum of differences of shares."""
    return sum(abs(each - another) for each, another in zip(one, other, strict=True))


def nearest_recipe(rate: float, shares: Shares, unit: str, varies: bool) -> Recipe:
    """The recipe with the smallest distance: the sum of differences in shares, half the log ratio of the rates, and
    0.15 for another unit."""

    def apart(recipe: Recipe) -> float:
        apart = distance(shares, recipe.shares) + 0.15 * (recipe.unit != unit) + 0.5 * ((recipe.rate is None) != varies)
        return apart + (abs(math.log(max(rate, 1e-6) / recipe.rate)) / 2 if recipe.rate and not varies else 0.0)

    return min(RECIPES, key=apart)


@dataclass(frozen=True)
class Structure:
    """The statistics of the selected positions."""

    rate: Share  # selected among ordinary tokens
    parts: tuple[Share, ...]  # of [MASK], random and unchanged among the selected
    mean_run: float
    counts: np.ndarray  # [n_windows] labels per window
    independent_variance: float  # of as many independent positions
    words: tuple[np.ndarray, np.ndarray] | None  # the sizes of words of several tokens, and how many are selected
    is_clustered: bool  # whether neighbors are selected together
    varies: bool  # whether each window has its own rate

    @property
    def shares(self) -> Shares:
        masked, random, kept = (part.value for part in self.parts)
        return masked, random, kept

    @property
    def whole_words(self) -> float:
        """The share of words of several tokens that are selected as a whole, among those that are at all."""
        sizes, chosen = self.words or (np.ones(0), np.ones(0))
        return float((chosen == sizes)[chosen > 0].mean()) if chosen.any() else 0.0

    @property
    def unit(self) -> str:
        """token, span or word."""
        return "word" if self.whole_words > 0.5 else "span" if self.is_clustered else "token"

    @property
    def is_fixed(self) -> bool:
        """Whether every window has the same number of labels."""
        return bool(self.counts.var() < 1e-9)


def structure_of(table: Table, pairs: list[Pair]) -> Structure:
    """The structure of the main text, given what its battery found."""
    selected, totals = table.selected, table.per_call(table.selected)
    rate = Share(totals, table.per_call(table.eligible))
    counts, sizes = table.per_window(selected), table.per_window(table.eligible)
    independent = float((sizes * rate.value * (1 - rate.value)).mean())
    found = {pair.circumstance: pair.found for pair in pairs if pair.outcome == "selected" and pair.is_found}
    near = found.get("neighbors")
    runs = selected & ~np.pad(selected, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    words = None
    if table.words is not None and (where := (table.words >= 0) & table.eligible).any():
        n_rows, width = table.words.shape[1], int(table.words.max()) + 1
        windows = np.arange(len(table.words) * n_rows).reshape(-1, n_rows, 1)
        numbers = (windows * width + table.words)[where]
        sizes, chosen = np.bincount(numbers), np.bincount(numbers, selected[where]).astype(int)
        words = sizes[sizes > 1], chosen[sizes > 1]
    return Structure(
        rate,
        tuple(Share(table.per_call(part), totals) for part in (table.masked, table.randomized, table.kept)),
        float(selected.sum() / max(1, runs.sum())),
        counts,
        independent,
        words,
        near is not None and near.shares[0] > near.mean,
        "window" in found and counts.var() > 3 * independent,
    )
