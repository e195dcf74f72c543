"""A class of the program itself is found again in what it stored, whichever way it is started."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from dataclasses import dataclass
from multiprocessing import get_context

import tidelog
from tidelog import ValueState


@dataclass
class Place:
    page: int
    line: int


def main() -> None:
    with tidelog.open("store", state={"count": ValueState(int)}) as db:
        place = (db.position or {}).get("book", Place(0, 0))
        assert type(place) is Place, place
        total = db.key("pages").count.get() or 0
        db.key("pages").count.set(total + 1)
        db.advance("book", Place(place.page + 1, 7))
        print(place.page, total)


if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        process = get_context("spawn").Process(target=main)
        process.start()
        process.join()
    else:
        main()
"""

WAYS = {
    "as a file": ["reading.py"],
    "as a module": ["-m", "reading"],
    "imported": ["-c", "import reading; reading.main()"],
    "in a process that the file spawns": ["reading.py", "spawn"],
    "in a process that the module spawns": ["-m", "reading", "spawn"],
}


def started(directory: Path, way: str = "as a file") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *WAYS[way]]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_a_class_is_found_whichever_way_the_program_is_started_next(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text(PROGRAM)
    for number, way in enumerate([*WAYS, "as a file"]):
        ran = started(tmp_path, way)
        assert (ran.stdout, ran.stderr) == (f"{number} {number}\n", "")


def test_a_class_that_is_gone_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    program = tmp_path / "reading.py"
    program.write_text(PROGRAM)
    assert started(tmp_path).returncode == 0
    program.write_text(PROGRAM.replace("Place", "Spot"))
    ran = started(tmp_path)
    assert ran.returncode == 1
    assert "StateSchemaError: stored position; expected" in ran.stderr
    assert "reading.Place" in ran.stderr
    program.write_text(PROGRAM)
    assert started(tmp_path).stdout == "1 1\n"
