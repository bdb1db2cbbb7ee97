"""What a run shows: the terminal, and labml's dashboard where its server answers. The only place that knows labml.

On a terminal labml shows its progress line; in a pipe or a file there is one plain line an evaluation, without
carriage returns or colours.
"""

import http.client
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labml import experiment, lab, logger, monit, tracker
from labml.internal.app import AppTracker
from labml.internal.app.logs import APP_CONSOLE_LOGS
from labml.internal.experiment import experiment_singleton
from labml.internal.lab import lab_singleton
from labml.internal.logger import logger_singleton
from labml.internal.logger.destinations import Destination
from labml.internal.monitor import monitor_singleton
from labml.logger import Text

from training.samples import Guess

SECONDS_TO_ANSWER = 1.0
SECONDS_TO_DELIVER = 10.0
ROOT = Path(__file__).parent.parent


class PlainDestination(Destination):
    """labml's log without colours and carriage returns; lines that labml would overwrite are left out."""

    def log(self, parts: Sequence[Any], *, is_new_line: bool, is_reset: bool) -> None:
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        if is_new_line and text.strip():
            print(text.strip("\n"), flush=True)


def prepare(name: str, comment: str, logs: str) -> Path:
    """Create labml's experiment, and return the folder that the run will have; nothing is written yet."""
    be_quiet()
    if not sys.stdout.isatty():
        logger_singleton()._Logger__destinations = [PlainDestination()]
    # labml prefers .labml.yaml to its own environment variable; a variable is the more deliberate of the two.
    server = os.environ.get("labml_app_url")  # noqa: SIM112, labml's own name
    lab.configure({"experiments_path": os.path.expanduser(logs)} | ({} if server is None else {"app_url": server}))
    # labml sends from a thread that retries for ever: as it stands, the process would never end without a server.
    AppTracker.__init__.__kwdefaults__["daemon"] = True
    AppTracker._check = _is_sending
    experiment.create(
        name=name,
        comment=comment,
        writers={"app"} if _server_answers() else set(),
        python_file=str(ROOT / "experiment.py"),
    )
    run = experiment_singleton().run
    run.repo_remotes = []  # a remote's address may hold a password, and would be sent to the server
    return Path(run.run_path)


def be_quiet() -> None:
    """Do not show labml's progress lines: dozens of them while the configs are computed, and none fit for a pipe."""
    monitor_singleton().silent()


@contextmanager
def started() -> Iterator[None]:
    """The time in which the run is live on the dashboard."""
    if "app" not in experiment_singleton().writers:
        # Without a server labml would keep all output in memory, and grow slower with every line.
        APP_CONSOLE_LOGS.outputs = lambda **_: None
    try:
        with experiment.start():
            yield
    finally:
        _deliver()


def _is_sending(app: AppTracker, check: Callable[[AppTracker], bool] = AppTracker._check) -> bool:
    """Once the server has answered with an error, labml's own check would raise at every save: in training."""
    return not (app.thread is not None and app.thread.errored) and check(app)


def _server_answers() -> bool:
    server = lab_singleton().app_configs
    if server is None:
        return False
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would answer in its place
    try:
        directly.open(server.url, timeout=SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        return True  # an answer, if only to say that this address wants a POST
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return True


def _deliver() -> None:
    """Wait a bounded time for labml to send what it still holds."""
    deadline = time.monotonic() + SECONDS_TO_DELIVER
    for thread in threading.enumerate():
        if type(thread).__name__ == "_AppTrackThread":
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                print(f"the dashboard's server did not take everything within {SECONDS_TO_DELIVER:.0f} s", flush=True)


class Tracking:
    """Shows one run: implements what `training.loop.Listener` asks for."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self.section: Any = None
        self.began: tuple[float, float] | None = None  # time and progress when the first step was done

    @contextmanager
    def training(self) -> Iterator[None]:
        """labml's progress line, with an estimate of the time left."""
        monitor_singleton().silent(not self.is_terminal)
        with monit.section("Train", total_steps=1.0, is_new_line=True) as self.section:
            yield

    def says(self, line: str) -> None:
        """Show one line of text."""
        logger.log(line)

    def progressed(self, progress: float) -> None:
        """Move the progress line; `progress` is the share of the budget that is spent."""
        if not self.is_terminal:
            return
        now = time.monotonic()
        if self.began is None:
            self.began = now, progress
        elif progress > self.began[1]:
            left = (now - self.began[0]) / (progress - self.began[1]) * max(0.0, 1 - progress)
            self.section.message = f"about {int(left) // 60}:{int(left) % 60:02d} left"
        monit.progress(min(progress, 1.0))

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Show one row of metrics.jsonl, and send its numbers to the dashboard."""
        logger.log(
            [
                f"step {row['step']:>7,}  {row['seconds']:>7.1f} s  ",
                "loss.valid ",
                (f"{row['loss.valid']:.4f}", Text.value),
                f" ± {row['loss.valid_stderr']:.3f}  ",
                *([f"excess {row['excess']:.4f}  "] if "excess" in row else []),
                f"accuracy.valid {row['accuracy.valid']:.1%}  ",
                *(f"{name} {row[name]:.1%}  " for name in ("accuracy.nsp.valid", "accuracy.sop.valid") if name in row),
                (
                    f"loss.train {row['loss.train']:.4f}  seq_len {row['seq_len']}  "
                    f"lr {row['learning_rate']:.2e}  {row['chars_per_second']:,.0f} chars/s",
                    Text.subtle,
                ),
            ]
        )
        tracker.set_global_step(row["step"])
        tracker.save({key: float(value) for key, value in row.items() if key not in ("step", "corpus")})

    def sampled(self, samples: Sequence[Sequence[Guess]]) -> None:
        """Show masked text with the guesses: on a terminal in colour, else `[e]` is right, `[x!e]` is x for e."""
        for guesses in samples:
            logger.log([part for guess in guesses for part in self._shown(guess)])

    def _shown(self, guess: Guess) -> list[Any]:
        truth, guessed = _visible(guess.truth), _visible(guess.guess or "")
        if guess.guess is None:
            return [truth]
        if self.is_terminal:  # a space has no colour
            return [(guessed.replace(" ", "␣"), Text.success if guess.is_right else Text.danger)]
        return [f"[{truth}]" if guess.is_right else f"[{guessed}!{truth}]"]


def _visible(text: str) -> str:
    return text.replace("\n", "↵").replace("\r", "↵").replace("\t", "→")
