"""The texts that a run fills in to show what the model has learned."""

from collections.abc import Sequence

from configs.keys import ConfigError, shortened
from data.corpus import Corpus
from data.vocabulary import Vocabulary


def prompts_of(chosen: Sequence[str], corpus: Corpus, vocabulary: Vocabulary) -> list[str]:
    """The prompts that the config has, or lines from the beginning of the validation text. Raises ConfigError."""
    if not chosen:
        lines = [line for line in corpus.validation[:2_000].splitlines()[1:-1] if len(line) > 20]
        return lines[:6] or [corpus.validation[:60]]
    for prompt in chosen:
        try:
            n_tokens = len(vocabulary.encode(prompt))
        except ValueError as error:
            raise ConfigError(f"sample.prompts: {error}") from error
        if not n_tokens:
            raise ConfigError(f"sample.prompts: {shortened(prompt)!r} has no tokens")
    return list(chosen)
