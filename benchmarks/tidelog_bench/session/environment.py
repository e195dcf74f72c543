"""What a session ran on: machine, versions, revision, source.

Invariant: nothing here names the machine, its user or a path.
"""

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import tidelog

_LIBRARY: Final = Path(tidelog.__file__).parent
_MEASURED: Final = (_LIBRARY, Path(__file__).parents[1])
"""The packages that are measured and that measure."""
_PACKAGES: Final = ("tidelog", "rocksdict", "zstandard", "msgspec", "pyspark")


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def load() -> float:
    """The load average of the last minute: shows whether others work too."""
    return round(os.getloadavg()[0], 2)


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """All processors together since the machine started, in ticks."""

    total: int
    stolen: int
    """Wanted, but given to other guests of the host."""

    @classmethod
    def now(cls) -> "ProcessorTime":
        """Zeros where the system has no such figures."""
        try:
            fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        except OSError:
            return cls(0, 0)
        return cls(sum(map(int, fields[:8])), int(fields[7]))

    def stolen_since(self, earlier: "ProcessorTime") -> float:
        """The share that was stolen, 0 to 1."""
        total = self.total - earlier.total
        return round((self.stolen - earlier.stolen) / total, 4) if total else 0.0


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that are measured."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def source_digest() -> str:
    """Digest of the library's modules as they were imported, so that local edits show."""
    digest = hashlib.blake2b(digest_size=8)
    for package in _MEASURED:
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def revision() -> str | None:
    """The commit checked out where the library lies; None outside of a checkout."""
    root = _LIBRARY.parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
