"""What a text is written from: a prompt with blanks, and a run whose masking rates suit it."""

from collections.abc import Mapping
from typing import Any

from configs.keys import ConfigError
from trained.load import Trained
from trained.template import Notation, Template, blanks_of, read_template
from training.schedule import masking_rates

LONGEST = 1_000_000  # tokens
# Writing begins with blanks alone. In the first 30% of it, a text has more blanks than any window
# of a training with rates up to 70%. In the last 30%, it has fewer blanks than any window of a
# training with rates from 30%.
HIGHEST_RATE = 0.7
LOWEST_RATE = 0.3


def template_of(
    prompt: str, length: int | None, trained: Trained, notation: Notation
) -> Template:
    """A prompt, then blanks up to `length` tokens. Raises ConfigError if that is impossible."""
    vocabulary = trained.vocabulary
    try:
        template = read_template(prompt, vocabulary, notation, most_blanks=LONGEST)
    except ValueError as error:
        raise ConfigError(f"--prompt: {error}") from error

    n = len(template.ids)
    has_blanks = vocabulary.mask_token in template.ids
    if length is None:
        length = n if has_blanks else max(n, trained.longest)
    if length < n:
        raise ConfigError(
            f"--length {length} is shorter than the prompt, which has {n} tokens"
        )
    if length == n and not has_blanks:
        raise ConfigError(
            f"the prompt has no blanks and {length} tokens already: use --length for a longer text"
        )

    return Template([*template.parts, blanks_of(length - n, vocabulary)], vocabulary)


def reservation_about(values: Mapping[str, Any]) -> str:
    """Why a run with these keys writes badly, or an empty string."""
    default = values["masking.masking_prob"]
    rates: list[float] = []
    for stage in values["training.stages"]:
        rates += masking_rates(stage, default)
    lowest = min(rates)
    highest = max(rates)
    named = f"{lowest:.0%}" if lowest == highest else f"{lowest:.0%} to {highest:.0%}"
    how = f"at masking rates of {named} only"
    if highest < HIGHEST_RATE:
        why = "it has never seen mostly masked text, so it writes badly"
    elif lowest > LOWEST_RATE:
        why = "it has never seen text with few blanks, so it writes badly"
    elif values["masking.randomize_prob"]:
        how = "with random replacements"
        why = "it expects wrong characters in what it continues, so it writes worse"
    else:
        return ""

    return f"the run was trained {how}: {why}; the preset write trains at all rates"
