"""How commands end: one table of exit codes, by what went wrong.

Invariant: 2 is for what no other start can help; what may pass by itself ends with 1, so that a
unit may start the job again.
"""

from typing import Final

from tidelog.errors import ConfigError, FencedError, TidelogError, UnavailableError

EXIT_OK: Final = 0
EXIT_PROBLEM: Final = 1
EXIT_USAGE: Final = 2
EXIT_FENCED: Final = 3
EXIT_UNDECIDED: Final = 4
"""A command such as `verify` could not look at all that its verdict depends on."""
EXIT_INTERRUPTED: Final = 130


def exit_code_of(error: TidelogError) -> int:
    """The exit code of a command that ends with this error."""
    match error:
        case FencedError():
            return EXIT_FENCED
        case UnavailableError():
            return EXIT_PROBLEM
        case ConfigError():
            return EXIT_USAGE
        case _:
            return EXIT_PROBLEM
