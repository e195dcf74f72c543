"""Names of changelogs and of the objects that hold them; `path` and `parse` are inverse."""

import re
from dataclasses import dataclass
from typing import Final, Self

from tidelog.errors import InvariantError

DEFAULT_STORE: Final = "default"
BATCHES_PER_ROLL_UP: Final = 10
"""Batches whose index one roll-up holds."""

IN_COMMIT: Final = "commits/"
"""What a segment within a commit is named by, in the index: `commits/17`."""

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

_CHANGELOG: Final = re.compile(
    r"([0-9]+)/([0-9]+)(?:/([^/]+))?/([0-9]+)_([^/]+)\.changelog", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ChangelogName:
    """One changelog file of a Spark state store; `version` is the state's, one above the batch."""

    operator: int
    partition: int
    store: str
    version: int
    id: str

    @property
    def directory(self) -> str:
        """The directory of the state store; the default store has none of its own."""
        directory = f"{self.operator}/{self.partition}"
        return directory if self.store == DEFAULT_STORE else f"{directory}/{self.store}"

    @property
    def path(self) -> str:
        """The file, relative to the checkpoint's `state` directory."""
        return f"{self.directory}/{self.version}_{self.id}.changelog"

    @property
    def sort_key(self) -> tuple[str, int, str]:
        """Directory, version and id, in the order by which the index sorts."""
        return self.directory, self.version, self.id

    @classmethod
    def parse(cls, relative: str) -> Self | None:
        """The name in a path relative to `state`; None for others, as a changelog without an id."""
        match = _CHANGELOG.fullmatch(relative)
        if match is None:
            return None
        operator, partition, store, version, checkpoint_id = match.groups()
        name = cls(
            int(operator), int(partition), store or DEFAULT_STORE, int(version), checkpoint_id
        )
        in_range = max(name.operator, name.version) <= MAX_LONG and name.partition <= MAX_INT
        # The path differs with leading zeros, and with a directory called `default`.
        return name if in_range and name.path == relative else None

    @classmethod
    def of(cls, directory: str, version: int, checkpoint_id: str) -> Self | None:
        """The name that a directory, a version and an id make; None if they make none."""
        name = cls.parse(f"{directory}/{version}_{checkpoint_id}.changelog")
        expected = directory, version, checkpoint_id
        return name if name is not None and name.sort_key == expected else None


def segment_name(run: str, executor: str, counter: int) -> str:
    """Name of a segment, without its directory `segments`."""
    return f"{run}-{executor}-{counter:08d}.seg"


def roll_up_name(batch: int) -> str:
    """Name of the roll-up of the window that a batch is in, without its directory `index`."""
    if batch < 0:
        raise InvariantError(
            "a roll-up of the index",
            expected="a batch number from 0",
            found=str(batch),
            action="report this as a bug of the caller",
        )
    return f"{batch - batch % BATCHES_PER_ROLL_UP:010d}.json"
