"""Records: one JSON line per result, with all that is needed to judge or repeat it.

Invariant: files under `results/` are only ever appended to.
"""

import hashlib
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tidelog

_HERE = Path(__file__).parent.parent
RESULTS = _HERE / "results" / "decisions"
_PACKAGES = ("tidelog", "rocksdict", "zstandard", "msgspec", "bytewax")


def append(experiment: str, settings: dict[str, Any], result: dict[str, Any]) -> None:
    """Append one record to `results/<experiment>.jsonl`."""
    record = {
        "experiment": experiment,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision(_HERE.parent),
        "source": source_digest(),
        "machine": machine(),
        "versions": versions(),
        "settings": settings,
        "result": result,
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{experiment}.jsonl").open("a") as lines:
        lines.write(json.dumps(record, sort_keys=True) + "\n")


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system; load tells whether others were working too."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Of Python and the packages that matter."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def source_digest() -> str:
    """Of the library's modules as they were imported, so that local edits show."""
    root = Path(tidelog.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def revision(root: Path) -> str | None:
    """The commit checked out at `root`."""
    head = root / ".git" / "HEAD"
    if not head.is_file():
        return None
    content = head.read_text().strip()
    if not content.startswith("ref: "):
        return content
    ref = content.removeprefix("ref: ")
    loose = root / ".git" / ref
    if loose.is_file():
        return loose.read_text().strip()
    packed = root / ".git" / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)
