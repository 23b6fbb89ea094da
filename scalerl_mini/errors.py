"""The one exception a user is meant to read.

Everything a person can mend (a wrong key, a missing file, a full disk) is raised as `UserError`; the command line
prints its single line and exits with 2. Any other exception is a fault of ours or of the machine and exits with 1.
"""


class UserError(Exception):
    """One clear line: what is wrong, where, and how to mend it."""
