"""Table files that are what their names say.

Invariant: a table file's name carries the hash of its content, and no table is opened from another
content. The CRC beside a name cannot tell: a file that ends with its own CRC has the same CRC as
every other such file.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.errors import CorruptObjectError
from tidelog.table.port import Table, TableFactory

_NAME: Final = re.compile(r"tables/[^/]+/([0-9a-f]{32})-.+\.sst")
_HASH_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class HashedFiles:
    """Opens tables as `factory` does; `files` are the objects of their files by local name."""

    factory: TableFactory
    files: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Of the factory."""
        return self.factory.kind

    def create(self, directory: Path) -> Table:
        """As the factory."""
        return self.factory.create(directory)

    def restore(self, directory: Path) -> Table:
        """As the factory; raises CorruptObjectError for a file of another object."""
        for name, stored in self.files.items():
            _check(directory / name, stored)
        return self.factory.restore(directory)


def _check(path: Path, stored: str) -> None:
    named = _NAME.fullmatch(stored)
    if named is None:
        return
    found = hashlib.blake2b(path.read_bytes(), digest_size=_HASH_BYTES).hexdigest()
    if found != named[1]:
        raise CorruptObjectError(
            f"object {stored}",
            expected="the content whose hash is in its name",
            found=f"content of hash {found}",
            action="restore an older slot (`tidelog checkpoints list URL` shows them)",
        )
