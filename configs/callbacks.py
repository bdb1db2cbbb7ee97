"""The callbacks of a run, which write, steer or check it."""

import math

from configs.devices import in_all_processes
from configs.experiment import Configs
from configs.keys import ConfigError, shortened
from data.reference_losses import unigram_loss, without_counting
from data.reference_process import References
from distributed.launch import n_started
from runs.callbacks import Callback
from runs.run_folder import RunFolder
from training.callbacks import KnobPanel, Recorder, ReferenceLosses, Samples
from training.checkpoint import environment
from training.cuda_graph import CudaGraphRecorder
from training.health_checks import HealthChecks


def writing(c: Configs, run: RunFolder) -> list[Callback]:
    """The callbacks that write a run. Only the first process has them, after those of all processes."""
    facts = environment(c.torch_device, c.compiled is not None, n_started())
    why_not = without_counting(c.data.vocabulary, c.data.loaded)
    return [ReferenceLosses(run, References(c.data.loaded, simple_losses(c), why_not=why_not)), Recorder(run, facts)]


def steering(c: Configs) -> list[Callback]:
    """The callbacks that change or check the training, in all processes. Raises ConfigError for a wrong prompt."""
    rates = [stage.masking_prob for stage in c.training.stage_rows]
    found: list[Callback] = [in_all_processes(KnobPanel)(rates)]
    if c.cuda_graphs:
        found.append(CudaGraphRecorder(c.cuda_graphs, c.step))
    found.append(HealthChecks(simple_losses(c)["unigram"]))
    if c.sample.every_evaluations:
        found.append(Samples(prompts(c), c.data.vocabulary, c.sample.every_evaluations))
    return found


def simple_losses(c: Configs) -> dict[str, float]:
    """The losses of guessing, in nats: all tokens alike, and each by its frequency."""
    n_ordinary = c.data.vocabulary.n_ordinary
    unigram = unigram_loss(*(counts[:n_ordinary] for counts in c.data.counts))
    return {"uniform": math.log(n_ordinary), "unigram": unigram}


def prompts(c: Configs) -> list[str]:
    """The texts that samples fill in: those of the config, or lines from the beginning of the validation text."""
    if not c.sample.prompts:
        text = c.data.loaded.validation
        return [line for line in text[:2_000].splitlines()[1:-1] if len(line) > 20][:6] or [text[:60]]
    for prompt in c.sample.prompts:
        try:
            n_tokens = len(c.data.vocabulary.encode(prompt))
        except ValueError as error:
            raise ConfigError(f"sample.prompts: {error}") from error
        if not n_tokens:
            raise ConfigError(f"sample.prompts: {shortened(prompt)!r} has no tokens")
    return c.sample.prompts
