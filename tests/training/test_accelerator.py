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

SHORT = {"training.max_steps": 3, "training.evaluations": 1, "sample.every_evaluations": 1}
SHORT |= {"sample.prompts": ["Ne daz rants iv Insk"]}
SHORT |= {key: value for key, value in TINY.items() if key not in ("training.stages", *SHORT)}
CASES = {f"preset {name}": {"preset": name} for name in presets()}
# strategies, so that fewer runs try everything; a mixture asks all of its strategies for each batch
BESIDE = {
    "random": {"objective.nsp": True},
    "whole_word": {"objective.sop": True},
    "span": {"data.tokens": "bpe:300"},
    "entity": {"data.tokens": "bytes"},
    "pmi": {"masking.masks": "static", "masking.corrupt": "unit", "masking.no_mask_tokens": "ae"},
    "adaptive": {
        "training.optimizer": "adamw",
        "training.grad_accum_steps": 2,
        "data.sampling": "shuffled",
    },
    "mixture": {"masking.mixture": [{"until": 1.0, **dict.fromkeys(STRATEGIES, 1)}]},
}
CASES |= {
    f"strategy {name}": {"masking.strategy": name, "model.n_layers": 1, **keys}
    for name, keys in BESIDE.items()
}


def places():
    """The functions that may read values of the device: the list in docs/reading.md."""
    section = (
        (ROOT / "docs" / "reading.md")
        .read_text(encoding="utf-8")
        .partition("## Where the host waits")[2]
    )
    rows = re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", section.partition("\n## ")[0], re.M)
    return {(path, name) for path, names in rows for name in re.findall(r"`(\w+)`", names)}


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


@pytest.mark.parametrize("keys", CASES.values(), ids=CASES)
def test_a_run_reads_no_value_of_the_device_outside_of_the_listed_places(built, keys):
    configs = built(DEVICE, **keys)
    before = [parameter.inner.clone() for parameter in configs.network.parameters()]
    with computing(places()):
        configs.trainer.train()
    assert configs.trainer.step == 3
    assert not all(
        map(torch.equal, before, (parameter.inner for parameter in configs.network.parameters()))
    )


def test_a_step_on_the_device_does_what_one_on_the_cpu_does(built):
    """Otherwise the stand-in would prove nothing. Gradients of tables are dense on both."""
    plain, on_device = (built(device, preset="quick") for device in (CPU, DEVICE))
    plain.update.reading_synchronizes = True
    plain.network.encoder.ngrams.table.sparse = False
    for configs, context in ((plain, nullcontext()), (on_device, computing(places()))):
        torch.manual_seed(0)  # of dropout
        with context:
            configs.step(configs.training.all_stages[0])
    for one, other in zip(plain.network.parameters(), on_device.network.parameters(), strict=True):
        torch.testing.assert_close(other.inner, one.data, rtol=1e-3, atol=1e-5)


def test_planted_mistakes_are_caught(built, monkeypatch):
    configs = built(DEVICE, preset="quick")
    clip, left_behind = configs.update.clip, torch.ones(4)
    for planted, error, message in (
        (lambda: clip() + left_behind, WrongDevice, "both devices"),
        (lambda: clip() * clip().item(), HostRead, "_local_scalar_dense"),
        (lambda: clip() * bool(clip() > 0), HostRead, "_local_scalar_dense"),
        (lambda: clip().flatten()[clip().flatten() > 0].sum(), HostRead, "index"),
        (lambda: clip().cpu(), HostRead, "_to_copy"),
        (lambda: torch.zeros(()).copy_(clip()), HostRead, "copy_"),
        (lambda: clip() * len(clip().flatten().nonzero()), HostRead, "nonzero"),
        (clip, None, ""),
    ):
        monkeypatch.setattr(configs.update, "clip", planted)
        with computing(places()), pytest.raises(error, match=message) if error else nullcontext():
            configs.step(configs.training.all_stages[0])
