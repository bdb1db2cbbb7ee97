"""Keys of checkpoints, and of samples (texts that the model of a run fills in)."""

from typing import Annotated, Any

from configs.branch import Branch
from configs.keys import ConfigError, Key, shortened


class CheckpointConfigs(Branch):
    """Keys `checkpoint.*`."""

    every_seconds: Annotated[
        float, Key("seconds between checkpoints", above=0, high=10**9, resume=True)
    ] = 60.0


class SampleConfigs(Branch):
    """Keys `sample.*`."""

    every_evaluations: Annotated[
        int, Key("evaluations per sample; 0: none", low=0, high=10**6, resume=True)
    ] = 5
    prompts: Annotated[
        list, Key("texts for the samples; empty: lines of the validation text", resume=True)
    ] = []


def prompts(c: Any) -> list[str]:
    """The texts that samples fill in: those of the config, or else lines of the validation text.
    `c` is the tree."""
    if not c.sample.prompts:
        text = c.data.loaded.validation
        return [line for line in text[:2_000].splitlines()[1:-1] if len(line.strip()) > 20][:6] or [
            text[:60]
        ]
    for prompt in c.sample.prompts:
        try:
            n_tokens = len(c.data.vocabulary.encode(prompt))
        except ValueError as error:
            raise ConfigError(f"sample.prompts: {error}") from error
        if not n_tokens:
            raise ConfigError(f"sample.prompts: {shortened(prompt)!r} has no tokens")
    return c.sample.prompts
