"""What is compared: jobs and their inputs, which fixed seeds draw.

Invariant: the same workload and share give the same input on every machine with the same Python.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError

HERE: Final = Path(__file__).parent
TABLE: Final = "table-*"
"""The input files of a restart whose rows are in tables; those of the others are in the log."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One job; `draw` puts a share of its input into a directory."""

    job: str
    draw: Callable[[Path, float], None]
    parallelism: int = 1
    restored_from: int | None = None
    """The parallelism of an earlier run which this one restores and which has read everything."""
    base_job: str | None = None
    """What the base runs on the same input, where it has not what the job needs."""


def _words(folder: Path, count: float, size: int, distinct: float) -> None:
    chance = random.Random(5)
    known = [f"{chance.getrandbits(size * 4):0{size}x}" for _ in range(int(distinct))]
    for part in range(8):
        with (folder / str(part)).open("w") as file:
            for _ in range(int(count) // 8 // 12):
                file.write(" ".join(chance.choices(known, k=12)) + "\n")


def _library(folder: Path, share: float) -> None:
    """A thousand of Python's own sources, without packages that were installed beside them: the
    main job of the README.
    """
    library = sorted(Path(os.__file__).parent.rglob("*.py"))
    own = [path for path in library if "site-packages" not in path.parts]
    for number, path in enumerate(random.Random(9).sample(own, round(1000 * share))):
        shutil.copyfile(path, folder / f"{number}.py")


def _rows(folder: Path, count: float) -> None:
    chance = random.Random(6)
    for part in range(4):
        with (folder / f"{part}.jsonl").open("w") as file:
            for number in range(int(count) // 4):
                row = {
                    "ms": 1_700_000_000_000 + number * 40,
                    "user": f"u{chance.randrange(5000)}",
                    "country": f"c{chance.randrange(200)}",
                    "amount": chance.randrange(1000),
                }
                file.write(json.dumps(row) + "\n")


def _orders(folder: Path, count: float) -> None:
    """Orders, and payments of nine of ten within a minute: so many lines together."""
    chance = random.Random(8)
    paid: list[tuple[int, int]] = []
    with (folder / "orders").open("w") as file:
        for number in range(int(count / 1.9)):
            ms = 1_700_000_000_000 + number * 40
            row = {"ms": ms, "order": f"o{number:08}", "amount": chance.randrange(1000)}
            file.write(json.dumps(row) + "\n")
            if chance.random() < 0.9:
                paid.append((ms + chance.randrange(60_000), number))
    with (folder / "payments").open("w") as file:
        for ms, number in sorted(paid):
            row = {"ms": ms, "order": f"o{number:08}", "cents": number}
            file.write(json.dumps(row) + "\n")


def _users(folder: Path, share: float) -> None:
    """A million users once each, in random order: half of them for tables, half for the log."""
    users = list(range(int(1_000_000 * share)))
    random.Random(7).shuffle(users)
    for part in range(8):
        name = TABLE.replace("*", str(part)) if part < 4 else f"log-{part}"
        with (folder / name).open("w") as file:
            file.writelines(f'{{"user": "user-{user:010}"}}\n' for user in users[part::8])


WORKLOADS: Final[dict[str, Workload]] = {
    "short": Workload("wordcount", lambda to, share: _words(to, 1.44e6 * share, 16, 5e4 * share)),
    "long": Workload("wordcount", lambda to, share: _words(to, 4.8e5 * share, 200, 1.2e5 * share)),
    "files": Workload("wordcount", _library),
    "rows": Workload("jobs:revenue", lambda to, share: _rows(to, 240_000 * share)),
    "windows": Workload("jobs:windows", lambda to, share: _rows(to, 160_000 * share)),
    "sessions": Workload(
        "jobs:sessions", lambda to, share: _rows(to, 500_000 * share), base_job="jobs:windows"
    ),
    "joins": Workload(
        "jobs:joins", lambda to, share: _orders(to, 500_000 * share), base_job="jobs:joins_by_hand"
    ),
    "restore": Workload("jobs:visits", _users, parallelism=2, restored_from=2),
    "rescale": Workload("jobs:visits", _users, parallelism=3, restored_from=2),
}


def limits() -> dict[str, float]:
    """The largest ratio of each workload, from the file `limits`."""
    lines = [line.split("#")[0].split() for line in (HERE / "limits").read_text().splitlines()]
    found = {line[0]: float(line[1]) for line in lines if line}
    if found.keys() != WORKLOADS.keys():
        raise ConfigError(
            str(HERE / "limits"),
            expected=f"a limit for each of {', '.join(WORKLOADS)}",
            found=", ".join(found),
            action="add or remove lines",
        )
    return found
