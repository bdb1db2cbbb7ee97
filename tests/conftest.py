"""Fixtures for all tests: isolated folders, a small corpus, and ways to train small models."""

import math
import os
import resource
import shutil
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from hypothesis import settings
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from configs.callbacks import callbacks_of
from configs.command_line.command import resolve
from configs.compiled_code import CACHE_VARIABLE
from configs.experiment import configs_of
from data.corpus import ENVIRONMENT_VARIABLE
from runs.curves import save_curves
from runs.files import locked
from runs.run_folder import RunFolder
from tests import varlen
from tests.fork_server import ForkServer
from training.callbacks.callback import Callback
from training.checkpoint import load_weights
from training.resume import begin, resume
from training.tracking import be_quiet

settings.register_profile("no deadlines", deadline=None)  # tests share the cores
settings.load_profile("no deadlines")
# A job that a shell starts in the background ignores Ctrl-C, and so would the programs that tests
# start.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules.setdefault("torchvision", None)  # as in export.py

SAVE_CURVES = "training.callbacks.reference_losses.save_curves"
TINY = {
    "device": "cpu",
    "model.d_model": 32,
    "model.n_layers": 2,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.ngram_rows": 4_096,
    "model.ngram_parts": 2,
    "training.compile": False,
    "training.chars_per_step": 512,
    "training.stages": [
        {"until": 0.5, "seq_len": 32, "masking_prob": 0.3},
        {"until": 1.0, "seq_len": 64},
    ],
    "training.evaluations": 2,
    "sample.every_evaluations": 0,
}


def configs_for(corpus, **keys):
    """The config tree of a small model; keyword arguments are keys with `__` in place of the dot."""
    return configs_of(resolve(TINY, dotted({"data__corpus": corpus, **keys})))


def dotted(keys):
    """Keys with dots in place of `__`, and with the text of paths."""
    values = {}
    for key, value in keys.items():
        values[key.replace("__", ".")] = (
            str(value) if isinstance(value, Path) else value
        )
    return values


def weights(configs):
    """All weights of a model as one vector."""
    return torch.cat(
        [parameter.detach().flatten() for parameter in configs.network.parameters()]
    )


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """The environment of every test and of the programs that it starts."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # labml writes there
    monkeypatch.setenv("labml_app_url", "")  # no dashboard
    # no folder that a user chose: `kept_code` sets the variable
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run in parallel, one per core
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)  # a run sets both
    be_quiet()  # labml prints dozens of lines while it computes configs


def of_all_workers(factory):
    """A folder of the session that all parallel processes share."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def made_once(factory, name, make):
    """A copy of a folder that `make` fills, which one of all parallel processes does."""
    folder = of_all_workers(factory) / name
    with locked(folder.with_name(f"{name}.lock"), print) as mark:
        mark.seek(0)
        if not mark.read():
            folder.mkdir()
            make(folder)
            mark.write("made")
    return shutil.copytree(folder, factory.mktemp(name) / name)


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """An empty cache for every session, because the content of an old one could hide a mistake."""
    # the first one to compile or count something does it for the others
    folder = of_all_workers(tmp_path_factory) / "cache"
    with pytest.MonkeyPatch.context() as context:
        use_cache(folder, context)
        yield folder


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache of the test's own, also for the programs that it starts."""
    use_cache(tmp_path / "cache", monkeypatch)
    return tmp_path / "cache"


def use_cache(folder, monkeypatch):
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr("data.corpus.CACHE", folder)
    monkeypatch.setenv("FOLIO_CACHE", str(folder))  # for the programs that tests start


@pytest.fixture(scope="session", autouse=True)
def quick_files():
    """Leaves out what takes a third of a short run's time: `curves.png` stays empty, and nothing
    waits for the disk."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr(SAVE_CURVES, lambda path, *_: path.touch())
        context.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture
def draws(monkeypatch):
    """Runs of this test draw their curves."""
    monkeypatch.setattr(SAVE_CURVES, save_curves)


@pytest.fixture
def two_threads(monkeypatch):
    """Compiled code depends on the number of threads. With two, gradients are added in varying
    order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """Starts programs of the repository within milliseconds."""
    server = ForkServer(tmp_path_factory.mktemp("home"))
    yield server
    server.close()


@contextmanager
def limited(kind, size):
    """Limits this process: to files of a size, as a full disk does (RLIMIT_FSIZE), or to some
    memory (RLIMIT_AS)."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def addresses():
    """The bytes of addresses that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.fixture
def serve():
    """Starts servers on loopback that answer with a function of the request's handler; returns
    their addresses."""
    with ExitStack() as stack:

        def start(answer):
            class Handler(BaseHTTPRequestHandler):
                do_GET = do_POST = do_PUT = answer

                def log_message(self, *_):
                    pass

            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            threading.Thread(
                target=server.serve_forever, args=(0.01,), daemon=True
            ).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


def answer_with(content, promised=None):
    """The same answer to everything, with its length or another one in the header."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header(
            "Content-Length", str(len(content) if promised is None else promised)
        )
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def one_line(kind, match):
    """Expects an error whose message is one line."""
    return pytest.raises(kind, match=match, check=lambda error: "\n" not in str(error))


@pytest.fixture
def refusal(capsys):
    """Calls a program's `main`, which must refuse its words in one line; returns the line.

    The program has printed `before`, or anything.
    """

    def refuse(main, *words, code=2, before=None):
        capsys.readouterr()
        assert main([*map(str, words)]) == code

        output = capsys.readouterr()
        assert output.err.count("\n") == 1
        assert before in (None, output.out)
        return output.err

    return refuse


@pytest.fixture
def printed(capsys):
    """Calls a program's `main` with words, which must succeed; returns what it printed."""

    def call(main, *words):
        capsys.readouterr()
        assert main([*map(str, words)]) == 0
        return capsys.readouterr().out

    return call


def until(condition, seconds=20.0):
    """Wait until `condition` holds; fail after `seconds`. A sleep would be too short on a slow
    machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        threading.Event().wait(0.02)


def slow(*values):
    """Parameters of a test that only `make soak` runs."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def needed(condition, what):
    """Skip a test whose requirements are missing; on CI they must be met, so it fails instead."""
    if not condition:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


@pytest.fixture(scope="session")
def shakespeare():
    path = os.environ.get(ENVIRONMENT_VARIABLE)
    needed(path, f"needs the real text: set {ENVIRONMENT_VARIABLE} to its path")
    return Path(path).read_text(encoding="utf-8")


def written(path, text):
    """The path of a file after a text was written to it."""
    path.write_text(text, encoding="utf-8")
    return path


def config_file(folder, keys):
    """The path of a config file for a small run, which writes its logs to the same folder."""
    values = TINY | {"logs": str(folder / "logs")} | dotted(keys)
    return str(written(folder / "config.yaml", yaml.safe_dump(values)))


SENTENCES = (
    "the cat sat on the mat.\n",
    "a dog ran to the red door,\n",
    "why do the birds sing?\n",
    "Come in, O King!\n",
)


@pytest.fixture(scope="session")
def sentences():
    """40,000 characters: four sentences in random order, which a small model learns within seconds."""
    generator = torch.Generator().manual_seed(0)
    return "".join(
        SENTENCES[i] for i in torch.randint(4, (2_000,), generator=generator)
    )[:40_000]


@pytest.fixture(scope="session")
def text_file(tmp_path_factory, sentences):
    """The sentences in a file that no test changes."""
    return written(tmp_path_factory.mktemp("text") / "sentences.txt", sentences)


@pytest.fixture
def corpus_file(tmp_path, text_file):
    """The sentences in a file that the test may change."""
    return Path(shutil.copy(text_file, tmp_path))


@pytest.fixture
def varlen_kernel():
    with varlen.on_cpu() as calls:
        yield calls


def parts(text, n):
    """A text in `n` parts that end anywhere."""
    ends = [i * len(text) // n for i in range(n + 1)]
    return [text[start:end] for start, end in pairwise(ends)]


def in_files(folder, text, n):
    """Write a text into `n` files of a new folder, which end anywhere."""
    folder.mkdir()
    for i, part in enumerate(parts(text, n)):
        written(folder / f"{i:03}.txt", part)
    return folder


def only_run(logs):
    """The one run in a folder of logs."""
    (path,) = (logs / "mlm").iterdir()
    return RunFolder(path)


class Recording(Callback):
    """Keeps what a training reports, and stops it when asked to."""

    def __init__(self, stop_after=math.inf, on_row=lambda recording: None):
        self.stop_after = stop_after  # steps
        self.on_row = on_row
        self.lines = []
        self.rows = []
        self.samples = []
        self.wanted = None  # the requested knobs

    def stepped(self, trainer, stage):
        trainer.must_stop = trainer.step >= self.stop_after

    def wanted_knobs(self):
        return self.wanted

    def reported(self, trainer, line):
        self.lines.append(line)

    def evaluated(self, trainer, row, best):
        self.rows.append(row)
        self.on_row(self)

    def sampled(self, trainer, samples):
        self.samples.append(samples)


def train_in(
    folder, configs=None, stop_after=math.inf, on_row=lambda recording: None, **keys
):
    """Train a small model in this process; keyword arguments are keys with `__` in place of the
    dot. Returns the configs, the run, and the callbacks' `Recording`."""
    overridden = dotted(keys)
    values = resolve(TINY, overridden)
    configs = configs or configs_of(values)
    run = RunFolder.create(folder)
    begin(run, values, configs.data, "a test", overridden)
    recording = Recording(stop_after, on_row)
    trainer = watched(configs, run, recording)
    trainer.train()
    return SimpleNamespace(configs=configs, run=run, callbacks=recording)


def watched(configs, run, recording=None):
    """The trainer with the callbacks that `experiment.py` gives it; a recording takes the place of
    the one that shows the run."""
    trainer = configs.trainer
    trainer.callbacks = callbacks_of(configs, run, recording)
    return trainer


def check_same_weights(one, other):
    """Two runs have the same weights, bit for bit."""
    weights = [
        load_weights(run.checkpoints / "last.safetensors") for run in (one, other)
    ]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def check_same(one, other):
    """Two runs have the same weights, bit for bit, and the same rows except for times."""
    check_same_weights(one, other)
    assert without_times(one) == without_times(other)


TIMES = (
    "seconds",
    "wall_seconds",
    "chars_per_second",
    "share_of_peak",
    "waiting",
    "exchanging",
)


def without_times(run):
    """The rows of a run without what depends on the speed of the machine."""
    rows = run.metrics()
    for row in rows:
        for key in TIMES:
            row.pop(key, None)
    return rows


def check_resumes(train, stop_after, **keys):
    """A run that is stopped and resumed ends like one that is not; returns whole, stopped and
    resumed configs."""
    whole = train(**keys)
    stopped = train(stop_after=stop_after, **keys)
    assert stopped.configs.trainer.step == stop_after

    run = stopped.run
    configs = configs_of(run.config())
    trainer = watched(configs, run)
    resume(run, trainer, run.config(), configs.data.loaded)
    trainer.train()
    check_same(whole.run, run)
    return whole.configs, stopped.configs, configs


@pytest.fixture
def train(tmp_path, text_file):
    """`train_in` a folder of its own for each run, on the sentences unless a test names another
    text."""

    def train(configs=None, *args, folder=None, **keys):
        folder = folder or tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        return train_in(folder, configs, *args, **{"data__corpus": text_file, **keys})

    return train
