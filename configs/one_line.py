"""What a user did wrong, in one line. Apart from all that trains: the dashboard starts without PyTorch."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from configs.keys import ConfigError


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as ConfigError."""

    def error(self, message: str) -> NoReturn:
        hint = ": keys are written key=value, without --" if "unrecognized" in message else ""
        raise ConfigError(message + hint)


def fail(error: Exception) -> int:
    """Say in one line what is wrong with the user's input; the exit code for that."""
    line = " ".join(str(error).split())  # what is quoted of the input may hold line ends
    print(f"{Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    return 2
