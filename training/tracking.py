"""Shows a run on the terminal, in its log, and on the dashboard. The only module of training that
imports labml.

A terminal shows a progress bar with the time left. A pipe or file gets one plain line per
evaluation, without carriage returns and colors.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from labml import experiment, lab, logger
from labml.internal import experiment as internal
from labml.internal.app.logs import APP_CONSOLE_LOGS
from labml.internal.computer import configs as computer
from labml.internal.experiment import experiment_singleton
from labml.internal.logger import logger_singleton
from labml.internal.logger.destinations import Destination
from labml.internal.monitor import monitor_singleton
from labml.logger import Text
from tqdm import tqdm

from runs.delivery import Delivery, Uploader, dashboard_address
from runs.errors import StoppedError
from runs.files import ROOT
from runs.run_folder import RunFolder
from runs.terminal import printable
from training.callbacks.callback import Callback, Row, Weights
from training.callbacks.samples import Guess
from training.loop import Trainer
from training.schedule import Stage

SECONDS_TO_DELIVER = 10.0
BAR = (
    "{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"  # as tqdm's own
)
GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


class PlainDestination(Destination):
    """labml's log without colors and carriage returns. Lines that labml would overwrite are left
    out."""

    def log(self, parts: Sequence[Any], *, is_new_line: bool, is_reset: bool) -> None:
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        if is_new_line and text.strip():
            try:
                print(text.strip("\n"), flush=True)
            except BrokenPipeError:  # `head` stops reading early
                raise
            except OSError as error:  # not one of the run's files
                message = f"cannot write the output ({error.strerror}): redirect it"
                raise StoppedError(message) from error


def prepare(
    configs: Any, comment: str, logs: str, resumed: RunFolder | None = None
) -> Path:
    """Create labml's experiment with its configs, and return the folder of its run; nothing is
    written yet.

    `logs` is the absolute folder of all runs, `resumed` the run that continues. Raises InputError
    if the dashboard's address is not valid.
    """
    be_quiet()
    if not sys.stdout.isatty():
        logger_singleton()._Logger__destinations = [PlainDestination()]
    dashboard_address()  # raises before anything is written
    # A resumed run may have been moved. labml builds its path from `logs` and these two.
    folder, uuid = (
        (resumed.path.parent.name, resumed.path.name)
        if resumed
        else (configs.name, None)
    )
    # labml's own connection to the server retries forever and would keep the process from ending,
    # so `runs.delivery` replaces it, and labml's copy of all output for that connection is switched
    # off.
    lab.configure({"experiments_path": logs, "app_url": ""})
    APP_CONSOLE_LOGS.outputs = lambda **_: None
    # labml warns of a missing git repository
    internal.labml_notice = lambda message: None
    python_file = str(ROOT / "experiment.py")
    experiment.create(
        uuid=uuid, name=folder, comment=comment, writers=set(), python_file=python_file
    )
    created = experiment_singleton()
    created.run.name = configs.name
    created.run.repo_remotes = []  # the address of a git remote may contain a password
    # Folio prints the command and the folder of the run; labml would add the subject of a git
    # commit.
    created._Experiment__print_info = lambda: None
    # labml lists the projects of this computer in ~/.labml, for a service that Folio does not use.
    # The home folder may not be writable, and runs that start at the same time delete each other's
    # files there.
    computer._internal = SimpleNamespace(add_project=lambda path: None)
    experiment.configs(configs)
    return Path(created.run.run_path)


def be_quiet() -> None:
    """Hide labml's progress lines, of which it prints dozens while it computes configs."""
    monitor_singleton().silent()


class Tracking(Callback):
    """Shows one run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.is_terminal = sys.stdout.isatty()
        self.bar: tqdm | None = None  # on a terminal, after the first step
        self.uploader: Uploader | None = None
        self.has_new_row = False

    @contextmanager
    def training(self, is_interrupted: Callable[[], bool]) -> Iterator[None]:
        """Uploads to the dashboard, removes the progress bar, and records how the training ended."""
        self.run.save_status("in progress")
        # labml creates this file when a run starts, never removes it, and refuses to start if it
        # exists.
        (self.run.path / "run.pid").unlink(missing_ok=True)
        server = dashboard_address()

        if server is not None:
            self.uploader = Uploader(Delivery(self.run, server), logger.log)
            self.uploader.start_and_report()

        try:
            with experiment.start():
                yield
            with suppress(OSError):
                self.run.save_status("interrupted" if is_interrupted() else "completed")
        except BaseException as error:
            self._log(f"stopped: {error}")
            with suppress(OSError):
                self.run.save_status("crashed", str(error) or type(error).__name__)
            raise
        finally:
            if self.bar is not None:
                self.bar.close()
            undelivered = self.uploader and self.uploader.end(SECONDS_TO_DELIVER)
            if undelivered:
                logger.log(undelivered)

    def _log(self, line: str) -> None:
        with suppress(OSError):  # a full disk costs lines of the log, nothing else
            self.run.append_log(line)

    def wanted_knobs(self) -> Mapping[str, Any] | None:
        return self.uploader.delivery.knobs if self.uploader else None

    def reported(self, trainer: Trainer, line: str) -> None:
        self._show(line)
        self._log(line)

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        if self.uploader and self.has_new_row:
            self.has_new_row = False
            self.uploader.wake.set()
        if self.is_terminal:
            self._show_progress(trainer)

    def _show_progress(self, trainer: Trainer) -> None:
        progress = min(1.0, trainer.progress())
        if self.bar is None:
            # the time left follows the mean speed, which `smoothing=0` asks for
            self.bar = tqdm(
                desc="training",
                total=1.0,
                initial=progress,
                bar_format=BAR,
                smoothing=0,
                leave=False,
                dynamic_ncols=True,
                file=sys.stdout,
            )
        self.bar.set_postfix_str(f"step {trainer.step:,}", refresh=False)
        self.bar.update(progress - self.bar.n)

    def _show(self, line: Any) -> None:
        """A line above the bar, which the next step draws again."""
        self._clear_bar()
        logger.log(line)

    def _clear_bar(self) -> None:
        if self.bar is not None:
            self.bar.clear()

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        parts = shown_row(row)
        self._show(parts)
        self._log("".join(text for text, _ in parts))
        self.has_new_row = True  # another callback writes it after this one

    def sampled(self, trainer: Trainer, samples: Sequence[Sequence[Guess]]) -> None:
        """Show masked text with the guesses: in color on a terminal, otherwise `[e]` for a correct
        e, `[x!e]` for x."""
        for guesses in samples:
            self._show([self._shown(guess) for guess in guesses])
            self._log("".join(_marked(guess, in_color=True) for guess in guesses))

    def _shown(self, guess: Guess) -> tuple[str, Any]:
        if not self.is_terminal or guess.guess is None:
            return _marked(guess), None
        visible = _visible(guess.guess).replace(" ", "␣")  # a space shows no color
        return visible, Text.success if guess.is_correct else Text.danger


def shown_row(row: Row) -> list[tuple[str, Any]]:
    """The most important values of a row, as the parts of one line with their styles."""
    error = f" ± {row['loss.valid_stderr']:.3f}"
    if math.isnan(row["loss.valid_stderr"]):  # of a single window
        error = ""
    scores = [
        f"{name} {row[name]:.4f}  " for name in ("loss.bound", "excess") if name in row
    ]
    scores.append(f"accuracy.valid {row['accuracy.valid']:.1%}  ")
    for name in ("accuracy.nsp.valid", "accuracy.sop.valid"):
        if name in row:
            scores.append(f"{name} {row[name]:.1%}  ")

    unit = "tokens" if "loss.valid_per_character" in row else "chars"
    training = (
        f"loss.train {row['loss.train']:.4f}  seq_len {row['seq_len']}  "
        f"lr {row['learning_rate']:.2e}  {row['chars_per_second']:,.0f} {unit}/s"
    )
    return [
        (f"step {row['step']:>7,}  {row['seconds']:>7.1f} s  loss.valid ", None),
        (f"{row['loss.valid']:.4f}", Text.value),
        (f"{error}  {''.join(scores)}", None),
        (training, Text.subtle),
    ]


def _marked(guess: Guess, in_color: bool = False) -> str:
    """One token of a sample: as it is if it was visible, in brackets if it was guessed."""
    truth = _visible(guess.truth)
    if guess.guess is None:
        return truth
    marked = f"[{truth}]" if guess.is_correct else f"[{_visible(guess.guess)}!{truth}]"
    if not in_color:
        return marked
    return f"{GREEN if guess.is_correct else RED}{marked}{PLAIN}"


def _visible(text: str) -> str:
    return printable(text.replace("\n", "↵").replace("\r", "↵").replace("\t", "→"))
