"""Errors that are none of tidelog's own: defects, told like any other error.

Invariant: what leaves a command is a TidelogError; the cause stays chained for --debug.
"""

from tidelog.errors import InvariantError


def defect(cause: Exception) -> InvariantError:
    """The error to report for an exception nobody translated."""
    error = InvariantError(
        "tidelog itself",
        expected="no error but its own",
        found=f"{type(cause).__name__}: {cause}",
        action="run again with --debug and report the traceback; no durable state is lost",
    )
    error.__cause__ = cause
    return error
