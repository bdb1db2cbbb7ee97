"""Runs with several processes, started as torchrun starts them."""

import os
from contextlib import suppress
from datetime import timedelta

import pytest
import torch.distributed as dist

from tests.conftest import config_file, only_run, until
from training.checkpoint import load_weights

KEYS = {"training.chars_per_step": 1024, "checkpoint.every_seconds": 1e6}
WITHOUT_END = {
    "training__max_steps": 1_000_000,
    "checkpoint__every_seconds": 0.3,
    "training__evaluations": 1,
}


class Launcher:
    """Starts the processes of a run by forking, which takes milliseconds; torchrun itself takes
    seconds."""

    def __init__(self, fork_server, folder, corpus):
        self.fork_server = fork_server
        self.folder = folder
        self.corpus = corpus
        self.started = []
        self.stores = []

    def config(self, **keys):
        """Write a file of keys; `__` stands for a dot."""
        return config_file(self.folder, KEYS | {"data.corpus": self.corpus} | keys)

    def start(self, n, *arguments, attempt=0):
        """Start `n` processes of a program, for the first time or, as torchrun does after a
        failure, again."""
        environment = self.environment(n, attempt) if n > 1 else {}
        programs = []
        for rank in map(str, range(n)):
            own = environment | {"RANK": rank, "LOCAL_RANK": rank}
            programs.append(self.fork_server.start(list(arguments), own))

        self.started += programs
        return programs

    def environment(self, n, attempt):
        """What torchrun sets for `n` processes, except for their ranks."""
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.stores[-1].port if attempt else self.new_store()),
            "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(n),
            "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
        }

    def new_store(self):
        """The port of a new store, as torchrun has one."""
        store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60)
        )
        self.stores.append(store)
        return store.port

    def start_long(self, *program):
        """Start a run of two processes without end, which saves all the time. Waits for its second
        checkpoint."""
        config = self.config(**WITHOUT_END)
        programs = self.start(2, *(program or ["experiment.py"]), "--config", config)
        self.until("logs/mlm/*/checkpoints/previous.safetensors")
        return programs

    def until(self, pattern):
        """Wait for a file in the folder, as long as all processes live."""

        def is_there():
            assert all(process.poll() is None for process in self.started), (
                "a process has ended"
            )
            return list(self.folder.glob(pattern))

        until(is_there, 120)

    def only_run(self):
        """The one run in the folder."""
        return only_run(self.folder / "logs")

    def run(self, n, *arguments, attempt=0):
        """The outputs of processes, which end with exit code 0."""
        return [
            "".join(each) for each in self.ended([0] * n, *arguments, attempt=attempt)
        ]

    def ended(self, codes, *arguments, attempt=0):
        """Stdout and stderr of each of some processes, which end with these exit codes."""
        programs = self.start(len(codes), *arguments, attempt=attempt)
        found_codes = [program.wait(120) for program in programs]
        outputs = [
            (program.stdout.read(), program.stderr.read()) for program in programs
        ]

        assert found_codes == codes, "".join(map("".join, outputs))

        return outputs


def last_weights(run):
    return load_weights(run.checkpoints / "last.safetensors")


@pytest.fixture
def launcher(fork_server, tmp_path, corpus_file):
    launched = Launcher(fork_server, tmp_path, corpus_file)
    yield launched
    for program in launched.started:
        # a test may have ended the parent, which would have reported the end
        with suppress(ProcessLookupError):
            if program.poll() is None:
                os.kill(program.pid, 9)
