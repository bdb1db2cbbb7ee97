"""The bases of the errors whose messages are one line for the user."""


class InputError(ValueError):
    """Wrong input: a command, a key, a file or a run. The exit code is 2."""

    raised_by_all = False  # whether all processes of a run raise it, so that one of them reports it


class StoppedError(RuntimeError):
    """A run that cannot go on. The exit code is 1."""

    raised_by_all = False
