"""What a session ran on: machine, versions, revision.

Invariant: nothing here names the machine, its user or a path.
"""

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import tidelog

_LIBRARY: Final = Path(tidelog.__file__).parent
_PACKAGES: Final = ("tidelog", "rocksdict", "zstandard", "msgspec", "pyspark")


def here() -> dict[str, Any]:
    """Where and of what figures are: machine, versions, revision, load."""
    return {"machine": machine(), "versions": versions(), "revision": revision(), "load": load()}


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


def processor_time() -> tuple[int, int]:
    """Ticks of all processors since the machine started, and those of them that were wanted but
    given to other guests of the host; zeros where the system has no such figures.
    """
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0, 0
    return sum(map(int, fields[:8])), int(fields[7])


def stolen_since(earlier: tuple[int, int]) -> float:
    """The share that was given to others since then, 0 to 1."""
    total, stolen = (now - then for now, then in zip(processor_time(), earlier, strict=True))
    return round(stolen / total, 4) if total else 0.0


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that are measured."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


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
