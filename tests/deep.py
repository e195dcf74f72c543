"""What takes longer than CI may: part by part, whatever fails, with a table at the end.

`just deep` runs all parts, `just deep kills s3a` only these, `just seeds=20 deep simulation` fewer
seeds. The parts `versions` and `maven` need what `just other-sparks` and a Maven install.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SPARK: Final = "tests/spark"
OF_SPARK: Final = {
    "versions": (f"{SPARK}/versions",),
    "kills": (f"{SPARK}/kills", f"{SPARK}/verify/test_killed.py"),
    "s3a": (f"{SPARK}/s3a",),
    "standalone": (f"{SPARK}/test_standalone.py",),
    "maven": (f"{SPARK}/test_maven_build.py",),
}
"""Tests that are a part of their own; `spark` has the others of `tests/spark`, `tests` all else."""

PARTS: Final = ("simulation", "tests", "spark", *OF_SPARK)


@dataclass(frozen=True)
class Outcome:
    part: str
    result: str
    """`passed`, `FAILED`, or `skipped` where no test could run."""
    seconds: float
    last_line: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="just deep", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}: all")
    parser.add_argument("--seeds", type=int, default=100_000, help="simulated runs: %(default)s")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")

    outcomes = []
    try:
        for part in [part for part in PARTS if part in given.parts or not given.parts]:
            print(f"\n== {part} ==", flush=True)
            outcomes.append(run(part, command(part, given.seeds)))
    except KeyboardInterrupt:
        print("\ninterrupted: parts that are not in the table have not ended")
        sys.exit(130)
    finally:
        print_table(outcomes)
    sys.exit(any(outcome.result == "FAILED" for outcome in outcomes))


def command(part: str, seeds: int) -> list[str]:
    if part == "simulation":
        arguments = ["tidelog", "simulate", "--seeds", str(seeds), "--new-seeds", "--keep-going"]
    elif part == "tests":
        # A test with ten times the examples takes longer than one of CI may.
        arguments = ["pytest", "-n", "2", "--timeout", "3600", "tests", f"--ignore={SPARK}"]
    elif part == "spark":
        others = [path for paths in OF_SPARK.values() for path in paths]
        arguments = ["pytest", "-n", "2", "-rs", SPARK, *(f"--ignore={path}" for path in others)]
    else:
        arguments = ["pytest", "-n", "2", "-rs", *OF_SPARK[part]]
    return [sys.executable, "-m", *arguments]


def run(part: str, arguments: list[str]) -> Outcome:
    """Run a part, show what it prints, and keep its last line as the summary."""
    began = time.monotonic()
    last_line = ""
    with subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=os.environ | {"TIDELOG_DEEP": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last_line = line.strip() or last_line
    if process.returncode != 0:
        result = "FAILED"
    elif "pytest" in arguments and not re.search(r"\d+ passed", last_line):
        result = "skipped"
    else:
        result = "passed"
    return Outcome(part, result, time.monotonic() - began, last_line)


def print_table(outcomes: list[Outcome]) -> None:
    print(f"\n{'part':<12} {'outcome':<8} {'took':>8}")
    for outcome in outcomes:
        minutes, seconds = divmod(round(outcome.seconds), 60)
        took = f"{minutes}:{seconds:02}"
        print(f"{outcome.part:<12} {outcome.result:<8} {took:>8}  {outcome.last_line}")


if __name__ == "__main__":
    main()
