"""The exceptions that mean something to whoever starts a run.

Everything a person can mend (a wrong key, a missing file, a full disk) is raised as `UserError`; the command line
prints its single line and exits with 2. Any other exception is a fault of ours or of the machine and exits with 1; a
process of a run that dies of one is started again, unless the fault `WouldComeAgain`.
"""


class UserError(Exception):
    """One clear line: what is wrong, where, and how to mend it."""


class WouldComeAgain(RuntimeError):
    """A process found out that the run cannot be right: starting it again would only repeat it."""
