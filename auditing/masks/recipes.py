"""Published masking recipes, and the one that is nearest to what a target does."""

import math
from dataclasses import dataclass

Shares = tuple[float, float, float]  # of [MASK], random and unchanged among the selected positions


@dataclass(frozen=True)
class Recipe:
    """A masking recipe. `rate` None: a new rate for every window."""

    name: str
    rate: float | None
    shares: Shares
    unit: str  # token, span or word
    paper: str


BERT_SHARES = (0.8, 0.1, 0.1)
RECIPES = (
    Recipe("BERT", 0.15, BERT_SHARES, "token", "Devlin et al. 2018"),
    Recipe("SpanBERT", 0.15, BERT_SHARES, "span", "Joshi et al. 2020"),
    Recipe("whole-word", 0.15, BERT_SHARES, "word", "BERT's release of 2019; Cui et al. 2019"),
    Recipe("ModernBERT", 0.30, BERT_SHARES, "token", "Warner et al. 2024"),
    Recipe("40%", 0.40, BERT_SHARES, "token", "Wettig et al. 2023"),
    Recipe("ELECTRA's code", 0.15, (0.85, 0.0, 0.15), "token", "Clark et al. 2020, released code"),
    Recipe("[MASK] only", 0.15, (1.0, 0.0, 0.0), "token", "Wettig et al. 2023"),
    Recipe("[MASK] only, whole words", 0.15, (1.0, 0.0, 0.0), "word", "Transformers' whole_word_mask"),
    Recipe("[MASK] only, spans", 0.15, (1.0, 0.0, 0.0), "span", "as SpanBERT"),
    Recipe("[MASK] only, 30%", 0.30, (1.0, 0.0, 0.0), "token", "after Wettig et al. 2023"),
    Recipe("masked diffusion", None, (1.0, 0.0, 0.0), "token", "Sahoo et al. 2024; Nie et al. 2025"),
)
NAMES = {"roberta": "BERT", "mosaicbert": "ModernBERT", "bert": "BERT"}


def recipe_named(name: str) -> Recipe:
    """The recipe of a name, in any case; RoBERTa is BERT with new masks every time. Raises ValueError."""
    wanted = NAMES.get(name.lower(), name).lower()
    for recipe in RECIPES:
        if recipe.name.lower() == wanted:
            return recipe
    known = "; ".join([*(recipe.name for recipe in RECIPES), "RoBERTa", "MosaicBERT"])
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


# Shares that bugs produce from BERT's 80/10/10: (shares, slug, usual cause).
SIGNATURES: tuple[tuple[Shares, str, str], ...] = (
    (
        (0.81, 0.10, 0.09),
        "overlapping-draws",
        "Two overlapping draws decide 'random' and 'unchanged', and 'random' wins where both fall.",
    ),
    (
        (0.81, 0.09, 0.10),
        "overlapping-draws",
        "Two overlapping draws decide 'random' and 'unchanged', and 'unchanged' wins where both fall.",
    ),
    (
        (0.72, 0.10, 0.18),
        "overlapping-draws",
        "'random' is drawn first and [MASK] with 80% among the rest: of the rest, 8/9 would be right.",
    ),
    ((0.80, 0.02, 0.18), "random-share", "The second draw is over the 20% that [MASK] left, where 50% would be right."),
    ((0.80, 0.18, 0.02), "random-share", "The second draw is over the 20% that [MASK] left, where 50% would be right."),
    (
        (0.90, 0.00, 0.10),
        "random-overwritten",
        "[MASK] replaces the random tokens again: no random token is left in the inputs.",
    ),
    (
        (0.90, 0.01, 0.09),
        "random-overwritten",
        "Random tokens are put in first, and [MASK] with 90% on top of all selected positions.",
    ),
    (
        (0.80, 0.00, 0.20),
        "never-random",
        "No random token at all: the branch is never reached, or it puts the original back.",
    ),
    (
        (8 / 9, 1 / 9, 0.00),
        "kept-without-label",
        "Positions that keep their token have no label: labels are set only where the input changed.",
    ),
)
