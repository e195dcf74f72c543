"""The machines that processes run on: their local copies survive crashes, or not.

Invariant: a restart elsewhere finds an empty disk; damage hits files of dead processes only.
"""

import shutil
from pathlib import Path
from random import Random

_MOVES = 0.3
_DAMAGE = 0.4


class Machines:
    """Where the next incarnation runs."""

    def __init__(self, root: Path, rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._number = 0

    @property
    def local_copies(self) -> Path:
        """The directory for local recovery on the machine in use."""
        return self._root / f"machine-{self._number}"

    def move(self) -> None:
        """Another machine: the old one is still in use."""
        self._number += 1

    def after_crash(self) -> str:
        """What a crash leaves of the local copies; says what happened."""
        if self._rng.random() < _MOVES:
            self.move()
            return "on another machine"
        if self._rng.random() < _MOVES:
            shutil.rmtree(self.local_copies, ignore_errors=True)
            return "on an empty disk"
        if self._rng.random() < _DAMAGE and self._damage():
            return "on a damaged disk"
        return "on the same disk"

    def _damage(self) -> bool:
        """Truncate one file, or turn a bit of it."""
        files = sorted(path for path in self.local_copies.rglob("*") if path.is_file())
        if not files:
            return False
        path = files[self._rng.randrange(len(files))]
        data = path.read_bytes()
        at = self._rng.randrange(max(1, len(data)))
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else b"x"
        path.write_bytes(data[:at] if self._rng.random() < 0.5 else flipped)
        return True
