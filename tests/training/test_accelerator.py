"""Everything that trains runs on a device whose values are not read, except where docs/reading.md
says so."""

import re
from contextlib import nullcontext

import pytest
import torch

from configs.callbacks import callbacks_of
from configs.command_line.command import PRESETS, presets, read_config, resolve
from configs.experiment import configs_of
from data.masking.strategies import STRATEGIES
from data.play.grammar import play
from runs.files import ROOT
from tests.conftest import TINY, written
from tests.training.accelerator import CPU, DEVICE, HostRead, WrongDevice, computing
from training.chunked_objective import ChunkedObjective

SHORT = TINY | {
    "training.max_steps": 3,
    "training.evaluations": 1,
    "sample.every_evaluations": 1,
    "sample.prompts": ["Ne daz rants iv Insk"],
}
del SHORT["training.stages"]

# its windows are longer than a step of the others
SMALLER = {
    "gpu-base": {
        "data.tokens": "bpe:600",
        "training.chars_per_step": 2048,
        "training.grad_accum_steps": 2,
    }
}
# strategies, so that fewer runs try everything; a mixture asks all of its strategies for each batch
BESIDE = {
    "random": {"objective.nsp": True},
    "whole_word": {"objective.sop": True},
    "span": {"data.tokens": "bpe:300"},
    "entity": {"data.tokens": "bytes"},
    "pmi": {
        "masking.masks": "static",
        "masking.corrupt": "unit",
        "masking.no_mask_tokens": "ae",
    },
    "adaptive": {
        "training.optimizer": "adamw",
        "training.grad_accum_steps": 2,
        "data.sampling": "shuffled",
    },
    "mixture": {"masking.mixture": [{"until": 1.0, **dict.fromkeys(STRATEGIES, 1)}]},
}


def places():
    """The functions that may read values of the device: the list in docs/reading.md."""
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    section = page.partition("## Where the host waits")[2].partition("\n## ")[0]
    allowed = set()
    for path, names in re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", section, re.M):
        allowed.update((path, name) for name in re.findall(r"`(\w+)`", names))

    return allowed


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return str(written(tmp_path_factory.mktemp("text") / "play.txt", play(40_000)))


@pytest.fixture
def built(text, monkeypatch):
    """Builds a short training on a device."""
    monkeypatch.setattr("data.windows.pairs.VALIDATION_PAIRS", 16)
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 8)

    def build(device, preset="", **keys):
        values = read_config(PRESETS / f"{preset}.yaml") if preset else {}
        configs = configs_of(resolve(values, SHORT | {"data.corpus": text} | keys))
        configs.torch_device = device
        with computing():
            configs.trainer.callbacks = callbacks_of(configs)

        return configs

    return build


def check_reads_nothing(configs):
    before = values(configs)
    with computing(places()):
        configs.trainer.train()

    assert configs.trainer.step == 3
    assert not all(map(torch.equal, before, values(configs)))


def values(configs):
    return [parameter.inner.clone() for parameter in configs.network.parameters()]


@pytest.mark.parametrize("preset", presets())
def test_a_preset_reads_no_value_of_the_device_outside_of_the_listed_places(
    built, preset
):
    check_reads_nothing(built(DEVICE, preset, **SMALLER.get(preset, {})))


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_packed_documents_checkpointed_layers_and_chunks_read_nothing(
    built, varlen_kernel, monkeypatch, optimizer
):
    monkeypatch.setattr("training.chunked_objective.LOGITS_AT_ONCE", 2**16)
    keys = {
        "data.documents": "lines",
        "training.activation_checkpointing": True,
        "training.optimizer": optimizer,
    }
    configs = built(DEVICE, "gpu-base", **SMALLER["gpu-base"] | keys)

    assert configs.data.is_packed
    assert isinstance(configs.update.objective, ChunkedObjective)

    check_reads_nothing(configs)
    assert varlen_kernel.n_calls


@pytest.mark.parametrize("strategy", BESIDE)
def test_a_strategy_reads_no_value_of_the_device_outside_of_the_listed_places(
    built, strategy
):
    keys = {"masking.strategy": strategy, "model.n_layers": 1, **BESIDE[strategy]}
    check_reads_nothing(built(DEVICE, **keys))


def test_a_step_on_the_device_does_what_one_on_the_cpu_does(built):
    """Otherwise the stand-in would prove nothing. Gradients of tables are dense on both."""
    plain = built(CPU, "quick")
    on_device = built(DEVICE, "quick")
    plain.update.reading_synchronizes = True
    plain.network.encoder.ngrams.table.sparse = False

    for configs, context in ((plain, nullcontext()), (on_device, computing(places()))):
        torch.manual_seed(0)  # of dropout
        with context:
            configs.step(configs.training.all_stages[0])

    expected = [parameter.data for parameter in plain.network.parameters()]

    torch.testing.assert_close(values(on_device), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("planted", "error", "message"),
    [
        (lambda norm: norm + torch.ones(4), WrongDevice, "both devices"),
        (lambda norm: norm * norm.item(), HostRead, "_local_scalar_dense"),
        (lambda norm: norm * bool(norm > 0), HostRead, "_local_scalar_dense"),
        (lambda norm: norm.flatten()[norm.flatten() > 0].sum(), HostRead, "index"),
        (lambda norm: norm.cpu(), HostRead, "_to_copy"),
        (lambda norm: torch.zeros(()).copy_(norm), HostRead, "copy_"),
        (lambda norm: norm * len(norm.flatten().nonzero()), HostRead, "nonzero"),
    ],
)
def test_planted_mistakes_are_caught(built, monkeypatch, planted, error, message):
    configs = built(DEVICE, "quick")
    clip = configs.update.clip
    monkeypatch.setattr(configs.update, "clip", lambda: planted(clip()))
    with computing(places()), pytest.raises(error, match=message):
        configs.step(configs.training.all_stages[0])
