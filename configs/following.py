"""Training in the other processes of a run; experiment.py is the first one."""

from collections.abc import Callable
from dataclasses import replace

from torch import manual_seed

from configs.callbacks import callbacks_of
from configs.command_line.command import Command
from configs.experiment import Configs, configs_of
from configs.seeds import derived_seed
from data.corpus import PLAY, TINY_SHAKESPEARE
from distributed.interruption import Interruption
from distributed.processes import Processes
from training import tracking
from training.loop import Trainer
from training.resume import restore


def follow(
    command: Command, processes: Processes, build: Callable[[Configs, Command, Processes], Trainer]
) -> int:
    """Train with the first process, silently; returns the exit code."""
    tracking.be_quiet()
    is_play = processes.from_first(None)
    if command.values["data.corpus"] == "auto":
        corpus = PLAY if is_play else TINY_SHAKESPEARE  # no name from the store: it may be code
        command = replace(command, values=command.values | {"data.corpus": corpus})
    configs = configs_of(command.values)
    trainer = build(configs, command, processes)
    trainer.callbacks = callbacks_of(configs)
    # dropout differs between processes
    manual_seed(derived_seed(command.values["seed"], f"process {processes.rank}"))
    if command.resumed:
        restore(command.resumed, trainer)
    with Interruption(trainer).watched():
        trainer.train()
    return 0
