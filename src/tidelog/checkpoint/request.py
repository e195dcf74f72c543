"""Requests to a running job for a savepoint.

Invariants: a request never changes, and is no other one, whatever both ask for; its name is a
label that no slot number can be taken for.
"""

import re
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SavepointRequest(msgspec.Struct, frozen=True, eq=False):
    """A savepoint to be taken.

    With `stop` the job ends with the savepoint: sources stop at its barrier, and nothing is emitted
    after it. With `drain` operators first emit all that they hold back, as at the end of the data.
    """

    name: str
    format: SavepointFormat = "native"
    stop: bool = False
    drain: bool = False
    timeout_s: float | None = None
    """Seconds until the savepoint is given up; None: as for checkpoints."""


def check_name(name: str) -> str:
    """The name itself; raises ConfigError when no savepoint can have it."""
    legal = isinstance(name, str) and _NAME.fullmatch(name)
    if legal and not name.isdecimal() and name != "latest":
        return name
    raise ConfigError(
        f"savepoint name {name!r}",
        expected="1 to 100 of A-Z a-z 0-9 _ . -, not a number and not 'latest'",
        action="choose another name",
    )
