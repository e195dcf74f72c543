"""What takes longer than CI may: step by step, whatever fails, with a table at the end.

`just deep` runs every step that has not passed yet on these very sources, so a run that was
interrupted goes on where it stopped; `just deep --again` forgets what has passed. `just deep kills
s3a` runs these parts only, `just seeds=20 deep simulation` fewer seeds. The parts `versions`,
`twelve` and `maven` need what `just other-sparks` and a Maven install, `newest` a registry of
libraries.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("src", "benchmarks/tidelog_bench", "native", "tests", "pyproject.toml")
"""What a step is a test of: a change of anything tracked here makes all of them due again."""

SPARK: Final = "tests/spark"
OF_SPARK: Final = {
    "versions": (f"{SPARK}/versions",),
    "twelve": (f"{SPARK}/twelve",),
    "kills": (f"{SPARK}/kills", f"{SPARK}/verify/test_killed.py"),
    "s3a": (f"{SPARK}/s3a",),
    "maven": (f"{SPARK}/test_maven_build.py",),
}
"""Tests with Spark that are a part of their own; `spark` has the others of `tests/spark`."""

APART: Final = {"unit": "tests/unit", "property": "tests/property", "process": "tests/process"}
"""Tests without Spark that are a part of their own; `tests` has all else."""

SCHEDULE: Final = ("--dist", "worksteal", "--durations", "10")
"""A test of a quarter of an hour keeps no others waiting; the longest are named."""

PARTS: Final = ("simulation", *APART, "tests", "spark", *OF_SPARK, "newest")
SLICE: Final = 10_000
"""Seeds of a step, a quarter of an hour on two cores: no more is lost when it is interrupted."""


@dataclass(frozen=True)
class Step:
    part: str
    name: str
    arguments: list[str]
    """Arguments of the Python interpreter that runs the step."""


@dataclass(frozen=True)
class Outcome:
    result: str
    """`passed`, `FAILED`, or `skipped` where no test could run."""
    seconds: float
    last_line: str


@dataclass
class Memory:
    """Which steps have passed on one state of the sources; forgotten when these change."""

    path: Path
    tree: str
    first_seed: int = field(default_factory=lambda: random.randrange(10**12))
    """Where the simulation begins: a slice that failed is repeated with the seeds that it had."""
    passed: dict[str, Outcome] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, tree: str) -> "Memory":
        """What is known of these sources: nothing, unless the file is of them."""
        if path.is_file():
            stored = json.loads(path.read_bytes())
            if stored["tree"] == tree:
                passed = {name: Outcome(**outcome) for name, outcome in stored["passed"].items()}
                return cls(path, tree, stored["first_seed"], passed)
        return cls(path, tree)

    def save(self) -> None:
        passed = {name: asdict(outcome) for name, outcome in self.passed.items()}
        stored = {"tree": self.tree, "first_seed": self.first_seed, "passed": passed}
        unseen = self.path.with_suffix(".new")
        unseen.write_text(json.dumps(stored, indent=1))
        unseen.replace(self.path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="just deep", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}: all")
    parser.add_argument("--seeds", type=int, default=5_000, help="simulated runs: %(default)s")
    parser.add_argument("--again", action="store_true", help="also what has passed already")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")

    path, tree = ROOT / ".deep.json", tree_of(ROOT)
    memory = Memory(path, tree) if given.again else Memory.load(path, tree)
    memory.save()
    steps = all_steps(given.seeds, memory.first_seed)
    outcomes: dict[str, Outcome] = {}
    interrupted = False
    try:
        chosen = [step for step in steps if step.part in given.parts or not given.parts]
        run_due(chosen, memory, outcomes, run, lambda: tree_of(ROOT))
    except KeyboardInterrupt:
        interrupted = True
    print("\n".join(summary(steps, memory, outcomes)))
    if interrupted:
        print("interrupted: the same command goes on from here")
        sys.exit(130)
    sys.exit(any(outcome.result == "FAILED" for outcome in outcomes.values()))


def tree_of(root: Path) -> str:
    """A name for the tracked sources as they are on disk, committed or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *SOURCES], cwd=root, stdout=subprocess.PIPE, text=True, check=True
    )
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        file = root / name
        content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "removed"
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def all_steps(seeds: int, first_seed: int) -> list[Step]:
    """The steps of all parts, those of a part one after the other."""
    steps = []
    for start in range(0, seeds, SLICE):
        count = min(SLICE, seeds - start)
        arguments = ["--seeds", str(count), "--first-seed", str(first_seed + start), "--keep-going"]
        name = f"simulation {start}-{start + count - 1}"
        steps.append(Step("simulation", name, ["-m", "tests.simulator", *arguments]))

    def tests(part: str, *arguments: str) -> None:
        steps.append(Step(part, part, ["-m", "pytest", *SCHEDULE, *arguments]))

    # Four at a time, as in CI: they wait as much as they compute. A test with ten times the
    # examples takes longer than one of CI may.
    four = ("-n", "4", "--timeout", "3600")
    for part, path in APART.items():
        tests(part, *four, path)
    tests("tests", *four, "tests", *(f"--ignore={path}" for path in (SPARK, *APART.values())))
    # A Spark keeps a core busy.
    two = ("-n", "2", "-rs")
    others = [path for paths in OF_SPARK.values() for path in paths]
    tests("spark", *two, SPARK, *(f"--ignore={path}" for path in others))
    for part, paths in OF_SPARK.items():
        tests(part, *two, *paths)
    # What one run of CI proves, but with the versions that users get.
    steps.append(Step("newest", "newest", ["-m", "tests.newest", "--timeout", "3600"]))
    return steps


def run_due(
    steps: Sequence[Step],
    memory: Memory,
    outcomes: dict[str, Outcome],
    run: Callable[[Step], Outcome],
    tree: Callable[[], str],
) -> None:
    """Run the steps that have not passed; `outcomes` gets what became of each that was run."""
    for step in steps:
        print(f"\n== {step.name} ==", flush=True)
        if step.name in memory.passed:
            print("has passed on these sources; --again runs it again")
            continue
        outcome = outcomes[step.name] = run(step)
        if outcome.result == "passed" and tree() == memory.tree:
            memory.passed[step.name] = outcome
            memory.save()
        elif outcome.result == "passed":
            print("the sources have changed meanwhile: it does not count")


def run(step: Step) -> Outcome:
    """Run a step, show what it prints, and keep its last line as the summary."""
    began = time.monotonic()
    last_line = ""
    with subprocess.Popen(
        [sys.executable, *step.arguments],
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
    elif "pytest" in step.arguments and not re.search(r"\d+ passed", last_line):
        result = "skipped"
    else:
        result = "passed"
    return Outcome(result, time.monotonic() - began, last_line)


def summary(steps: Sequence[Step], memory: Memory, outcomes: dict[str, Outcome]) -> list[str]:
    """A line for each step, of this run or an earlier one, and whether all have passed."""
    lines = [f"\n{'step':<26} {'outcome':<8} {'took':>8}"]
    missing = []
    for step in steps:
        outcome = memory.passed.get(step.name) or outcomes.get(step.name)
        if step.name not in memory.passed:
            missing.append(step.name)
        if outcome is None:
            lines.append(f"{step.name:<26} not run")
            continue
        minutes, seconds = divmod(round(outcome.seconds), 60)
        earlier = "" if step.name in outcomes else " (earlier)"
        took = f"{minutes}:{seconds:02}"
        lines.append(f"{step.name:<26} {outcome.result:<8} {took:>8}  {outcome.last_line}{earlier}")
    if missing:
        lines.append(f"sources {memory.tree}: not passed as a whole, for {', '.join(missing)}")
    else:
        lines.append(f"sources {memory.tree}: passed as a whole")
    return lines


if __name__ == "__main__":
    main()
