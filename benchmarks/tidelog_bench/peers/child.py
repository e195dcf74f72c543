"""A program in a process of its own: `python -m tidelog_bench.peers.child PROGRAM TASK OUTCOME`.

Invariant: of tidelog's environment it sees only what `import tidelog` needs, so the
peer's own versions of common packages are what it imports; what it prints is kept for its errors.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from tidelog.errors import TidelogError
from tidelog_bench.peers.task import Outcome, Task

_NEEDED: Final = ("tidelog", "tidelog_bench", "lazy_loader")
_TIMEOUT_S: Final = 3600
_SHOWN: Final = 3000
"""Characters of what a failed program printed last."""


def run_program(python: Path, program: str, task: Task) -> Outcome:
    """Run a program with this Python; raises TidelogError with what it printed when it fails."""
    directory = task.path
    packages = directory / "packages"
    packages.mkdir()
    for name in _NEEDED:
        (packages / name).symlink_to(Path(import_module(name).__file__ or "").resolve().parent)
    asked, answer, log = directory / "task.json", directory / "outcome.json", directory / "log"
    asked.write_text(task.to_json())
    command = [str(python), "-m", __name__, program, str(asked), str(answer)]
    environment = os.environ | {"PYTHONPATH": str(packages)}
    with log.open("wb") as output:
        ended = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        raise TidelogError(
            f"the program {program}",
            expected="a run that ends with its figures",
            found=f"exit code {ended.returncode}: {_last(log)}",
            action="see what it printed; is the installed version of the peer supported?",
        )
    return Outcome.from_json(answer.read_text())


def _last(log: Path) -> str:
    return log.read_text(errors="replace")[-_SHOWN:].strip()


def main(program: str, asked: str, answer: str) -> None:
    """In the program's process."""
    module = import_module(f"tidelog_bench.peers.programs.{program}")
    outcome: Outcome = module.run(Task.from_json(Path(asked).read_text()))
    Path(answer).write_text(outcome.to_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
