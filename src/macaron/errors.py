"""Errors that a user can act on."""


class MacaronError(Exception):
    """Something in the input is wrong: the message names it and the remedy. The command prints it and exits 1."""


class UsageError(MacaronError):
    """The command was called wrongly; exits 2."""


class Interrupted(MacaronError):
    """A person or the system asked us to stop, and we did; exits 130."""


class ProcessLost(MacaronError):
    """Another process of the same run has ended; why, only that one can say."""
