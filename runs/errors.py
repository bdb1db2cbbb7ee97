"""Errors whose messages are one line for the user: their bases, and the line of any other error."""


class InputError(ValueError):
    """Wrong input: a command, a key, a file or a run. The exit code is 2."""

    # whether all processes of a run raise it, so that one of them reports it
    raised_by_all = False


class StoppedError(RuntimeError):
    """A run that cannot go on. The exit code is 1."""

    raised_by_all = False


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or else its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
