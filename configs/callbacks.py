"""The callbacks of a run, in the order in which the training loop calls them."""

import math

from configs.acceleration import (
    compiler,
    cuda_graphs,
    recorded_draws,
    thread_callback,
)
from configs.branch import is_sharded
from configs.data import validation_windows
from configs.experiment import Configs
from configs.keys import ConfigError
from configs.own_code import own_callback
from configs.windows import ends_of_folders, shares_of_folders
from data.protocol import WINDOW_LEN
from data.references.losses import unigram_loss, without_counting
from data.references.process import References
from data.text.report import text_report
from data.vocabulary import SEP
from data.windows import WindowBatch
from data.windows.pairs import held_out_pairs
from data.windows.prefetch import Prefetched
from distributed.exchange_time import ExchangeTime
from distributed.launch import n_started
from distributed.parallel import RowWriter
from distributed.substitutes import in_all_processes
from runs.run_folder import RunFolder
from training.callbacks.any_order_bound import AnyOrderBound
from training.callbacks.at_longest import AtLongest
from training.callbacks.callback import Callback
from training.callbacks.data_waiting import DataWaiting
from training.callbacks.evaluation_budget import EvaluationBudget
from training.callbacks.health_checks import MASKED_BY, HealthChecks
from training.callbacks.history import History
from training.callbacks.knobs import KnobPanel
from training.callbacks.other_trackers import OtherTracker
from training.callbacks.pair_accuracy import PairAccuracy
from training.callbacks.per_character import PerCharacter
from training.callbacks.recorder import Recorder
from training.callbacks.reference_losses import ReferenceLosses
from training.callbacks.samples import Samples
from training.callbacks.speed import ShareOfPeak
from training.callbacks.text_report import TextReport
from training.callbacks.weight_norm import WeightNorm
from training.checkpoint import environment
from training.marks import mark_of
from training.tracking import Tracking

WORD_SAMPLE = 2**18  # tokens of the validation text, in which words are counted


def callbacks_of(
    c: Configs, run: RunFolder | None = None, tracker: Tracking | None = None
) -> list[Callback]:
    """All callbacks of one process. Only the first process has a `run` to write and a `tracker` to
    show it. Raises ConfigError for a wrong prompt."""
    losses = simple_losses(c)
    is_parallel = n_started() > 1
    callbacks: list[Callback] = []

    # those that show and write the run
    if tracker:
        callbacks.append(tracker)
    if run:
        callbacks.append(TextReport(report_of(c)))
        if is_parallel:
            callbacks.append(ExchangeTime())
        why_not = without_counting(c.data.vocabulary, c.data.loaded)
        references = References(c.data.loaded, losses, why_not=why_not)
        callbacks.append(ReferenceLosses(run, references))
        callbacks.append(recorder(c, run))
        callbacks += [
            OtherTracker(run, name) for name in dict.fromkeys(c.tracking.also)
        ]
    elif is_parallel:
        callbacks.append(in_all_processes(RowWriter)())

    # those that steer and check the training, in all processes
    callbacks.append(
        in_all_processes(KnobPanel)(tracker.wanted_knobs if tracker else None)
    )
    if c.checkpoint.keep_at:
        callbacks.append(history(c, run))
    masked_by = f"data.batches={c.data.batches}" if c.data.batches else MASKED_BY
    callbacks.append(HealthChecks(losses["unigram"], masked_by))
    callbacks.append(WeightNorm())
    callbacks.append(ShareOfPeak(n_started()))

    # a source of the user draws no windows of Folio's
    if not c.data.batches and isinstance(c.data.training_windows, Prefetched):
        callbacks.append(DataWaiting(c.data.training_windows))
    if c.data.vocabulary.lengths is not None:
        callbacks.append(PerCharacter(c.data.vocabulary.lengths))
    threads = thread_callback(c)
    callbacks += filter(None, (compiler(c, threads), threads))

    if graphs := cuda_graphs(c):
        callbacks.append(graphs)
    if draws := recorded_draws(c):
        callbacks.append(draws)
    if c.sample.every_evaluations:
        callbacks.append(
            Samples(prompts(c), c.data.vocabulary, c.sample.every_evaluations)
        )
    callbacks += evaluating_callbacks(c)
    callbacks += [own_callback(reference) for reference in c.callbacks]
    return callbacks


def evaluating_callbacks(c: Configs) -> list[Callback]:
    """Further measurements of an evaluation, and the time that all of it may take."""
    evaluating: list[Callback] = []
    longest = max(row["seq_len"] for row in c.training.stages)
    if longest > WINDOW_LEN and len(c.data.validation_ids) >= longest:
        evaluating.append(AtLongest(validation_windows(c.data, longest)))
    has_several_rates = len(c.training.all_stages) > len(c.training.stages)
    if has_several_rates:
        evaluating.append(AnyOrderBound())
    budget = in_all_processes(EvaluationBudget)(evaluating)
    callbacks = [*evaluating, budget]
    if c.objective.pairs:
        callbacks.append(PairAccuracy(c.objective.pairs, validation_pairs(c)))
    return callbacks


def report_of(c: Configs) -> list[str]:
    """The lines about the text at the start of a run."""
    tokens = c.data.stored_tokens
    share_drawn = 1.0
    if tokens and c.data.weights:
        ends = ends_of_folders(tokens)
        n_tokens = ends.diff(prepend=ends.new_zeros(1))
        is_drawn = shares_of_folders(c.data) > 0
        share_drawn = (n_tokens[is_drawn].sum() / n_tokens.sum()).item()
    return text_report(c.data.loaded, c.data.vocabulary, tokens, share_drawn)


def simple_losses(c: Configs) -> dict[str, float]:
    """The losses of guessing, in nats: all tokens alike, and each by its frequency."""
    n_ordinary = c.data.vocabulary.n_ordinary
    training_counts, validation_counts = c.data.counts
    unigram = unigram_loss(training_counts[:n_ordinary], validation_counts[:n_ordinary])
    return {"uniform": math.log(n_ordinary), "unigram": unigram}


def recorder(c: Configs, run: RunFolder) -> Recorder:
    facts = environment(
        c.torch_device,
        c.training.compile and not is_sharded(c),
        c.training.autocast,
        n_started(),
    )
    in_background = c.torch_device.type != "cpu" and not is_sharded(c)
    return in_all_processes(Recorder)(run, facts, in_background=in_background)


def history(c: Configs, run: RunFolder | None) -> History:
    marks = [mark_of(value) for value in c.checkpoint.keep_at]
    sample = c.data.validation_ids[:WORD_SAMPLE]
    text = c.data.vocabulary.decode(sample).replace(SEP, " ")
    tokens_per_word = len(sample) / max(1, len(text.split()))
    return in_all_processes(History)(run, marks, tokens_per_word)


def prompts(c: Configs) -> list[str]:
    """The texts that samples fill in: those of the config, or else lines of the validation text."""
    for prompt in c.sample.prompts:
        try:
            n_tokens = len(c.data.vocabulary.encode(prompt))
        except ValueError as error:
            raise ConfigError(f"sample.prompts: {error}") from error
        if not n_tokens:
            raise ConfigError(f"sample.prompts: {prompt!r} has no tokens")
    text = c.data.loaded.validation
    lines = [line for line in text[:2_000].splitlines()[1:-1] if len(line.strip()) > 20]
    return c.sample.prompts or lines[:6] or [text[:60]]


def validation_pairs(c: Configs) -> WindowBatch:
    """Pairs of the validation text for an objective on pairs, the same for every run on every
    device."""
    if not hasattr(c.network, "forward_pairs"):
        raise ConfigError(
            f"objective.{c.objective.pairs}: this model.architecture has no forward_pairs, use modern"
        )
    ids = (
        c.data.stored_tokens.validation
        if c.data.stored_tokens
        else c.data.validation_ids.cpu()
    )
    return held_out_pairs(
        c.objective.pairs,
        ids,
        c.data.loaded.validation,
        c.data.vocabulary,
        c.torch_device,
    )
