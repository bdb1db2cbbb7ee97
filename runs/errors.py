"""The base of the errors that wrong input causes."""


class InputError(ValueError):
    """Wrong input: a command, a key, a file or a run. The message is one line for the user; the exit code is 2."""
