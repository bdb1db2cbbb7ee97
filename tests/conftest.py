"""What the tests share: isolated folders, small corpora, and a way to train small models."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from configs.command_line import resolve
from configs.experiment import Configs, configs_of
from data.corpus import ENVIRONMENT_VARIABLE
from runs.run_folder import RunFolder
from training.compilation import CACHE_VARIABLE
from training.resume import begin

ROOT = Path(__file__).parent.parent
TINY = {
    "device": "cpu",
    "model.d_model": 32,
    "model.n_layers": 2,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "training.compile": False,
    "training.chars_per_step": 512,
    "training.stages": [{"until": 0.5, "seq_len": 32, "masking_prob": 0.3}, {"until": 1.0, "seq_len": 64}],
    "training.evaluations": 2,
    "sample.every_evaluations": 0,
}


def configs_for(corpus: Path, **keys: Any) -> Configs:
    """The tree of a small model for a text; keyword arguments are keys with `__` for the dot."""
    overridden = {key.replace("__", "."): value for key, value in keys.items()}
    return configs_of(resolve(TINY, {"data.corpus": str(corpus), **overridden}))


def weights(configs: Configs) -> torch.Tensor:
    """All of a model's weights, in one row."""
    return torch.cat([parameter.detach().flatten() for parameter in configs.network.parameters()])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """labml writes to the home folder: give every test its own, and no dashboard."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("labml_app_url", "")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is computed once is computed anew in every session: an old cache could hide a mistake."""
    monkeypatch.setattr("data.corpus.CACHE", session_cache)
    monkeypatch.setenv("FOLIO_CACHE", str(session_cache))  # for the programs that tests start
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())  # which says that nobody has chosen a folder for compiled code
    return session_cache


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run beside each other, one a core: each, and the programs that it starts, keeps to one thread.

    Where a test asks for more, threads that wait leave the core to others.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    torch.set_num_threads(1)


def needed(condition: bool, what: str) -> None:
    """Skip a test whose needs are not there; on CI they must be, so it fails instead."""
    if not condition:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


@pytest.fixture(scope="session")
def shakespeare() -> str:
    path = os.environ.get(ENVIRONMENT_VARIABLE)
    needed(bool(path), f"needs the real text: set {ENVIRONMENT_VARIABLE} to its path")
    return Path(path or "").read_text(encoding="utf-8")


SENTENCES = (
    "the cat sat on the mat.\n",
    "a dog ran to the red door,\n",
    "why do the birds sing?\n",
    "Come in, O King!\n",
)


@pytest.fixture(scope="session")
def sentences() -> str:
    """40,000 characters of a few sentences in random order: something to learn within seconds."""
    generator = torch.Generator().manual_seed(0)
    return "".join(SENTENCES[i] for i in torch.randint(4, (2_000,), generator=generator))[:40_000]


@pytest.fixture
def corpus_file(tmp_path: Path, sentences: str) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text(sentences, encoding="utf-8")
    return path


@dataclass
class Heard:
    """A callbacks that keeps what it is told."""

    lines: list[str] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    samples: list[Any] = field(default_factory=list)
    wanted: Mapping[str, Any] | None = None
    on_row: Callable[["Heard"], Any] = lambda heard: None

    def wanted_knobs(self) -> Mapping[str, Any] | None:
        return self.wanted

    def says(self, line: str) -> None:
        self.lines.append(line)

    def progressed(self, progress: float) -> None:
        pass

    def evaluated(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.on_row(self)

    def sampled(self, samples: Any) -> None:
        self.samples.append(samples)


@dataclass
class Trained:
    configs: Configs
    run: RunFolder
    heard: Heard


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Trained]:
    """Train a small model in this process; keyword arguments are keys with `__` for the dot."""

    def trained(
        configs: Configs | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        on_row: Callable[[Heard], Any] = lambda heard: None,
        folder: Path | None = None,
        **keys: Any,
    ) -> Trained:
        overridden = {key.replace("__", "."): value for key, value in keys.items()}
        values = resolve(TINY, overridden)
        configs = configs or configs_of(values)
        run = RunFolder(folder or tmp_path / f"run{len(list(tmp_path.glob('run*')))}")
        run.path.mkdir(parents=True)
        begin(run, values, configs.data.loaded, configs.data.vocabulary, "a test", overridden)
        heard = Heard(on_row=on_row)
        configs.trainer.train(run, heard, is_stopped)
        return Trained(configs, run, heard)

    return trained


@pytest.fixture
def command(tmp_path: Path, home: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run `python experiment.py` as a user would, with small settings unless `tiny=False`."""

    def run(*arguments: str, tiny: bool = True, timeout: float = 120, **environment: str) -> Any:
        config = []
        if tiny:
            path = tmp_path / "tiny.yaml"
            import yaml

            path.write_text(yaml.safe_dump(TINY))
            config = ["--config", str(path)]
        return subprocess.run(
            [sys.executable, "experiment.py", *config, *arguments, f"logs={tmp_path / 'logs'}"],
            cwd=ROOT,
            env={**os.environ, "HOME": str(home), **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def only_run(tmp_path: Path) -> Callable[[], RunFolder]:
    """The one run that `command` made."""

    def find() -> RunFolder:
        (path,) = (tmp_path / "logs" / "mlm").iterdir()
        return RunFolder(path)

    return find
