"""Processor time and memory of a process with its descendants."""

import os
import subprocess
import sys
from pathlib import Path

from tidelog_bench.peers.usage import Process, family, parse, size_mb


def test_a_name_with_blanks_and_parentheses_does_not_shift_the_fields() -> None:
    fields = ["S", "7", *["0"] * 9, "100", "20", "3", "4", *["0"] * 6, "250", "0"]
    process = parse(f"42 (a (strange) name) {' '.join(fields)}")

    ticks = os.sysconf("SC_CLK_TCK")
    assert (process.pid, process.parent) == (42, 7)
    assert process.cpu_s == 127 / ticks


def test_a_family_is_the_root_with_all_its_descendants_and_nobody_else() -> None:
    processes = [
        Process(5, 4, 1.0),
        Process(2, 1, 1.0),
        Process(4, 2, 1.0),
        Process(3, 1, 1.0),
    ]

    assert sorted(process.pid for process in family(processes, 2)) == [2, 4, 5]


# In a process of its own: here a server of another test may end at any moment.
_PARENT = """
import os, subprocess, sys
from tidelog_bench.peers import usage

measure = lambda: usage.tree_mark(0).cpu if sys.argv[1] == "cpu" else usage.tree_peak_mb()
before = measure()
with subprocess.Popen(
    [sys.executable, "-c", sys.argv[2] + "; print('done', flush=True); input()"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
) as child:
    child.stdout.readline()
    assert child.pid in {process.pid for process in usage.family(usage.running(), os.getpid())}
    alive = measure()
    child.communicate(b"\\n")
print(before, alive, measure())
"""


def measured(what: str, code: str) -> list[float]:
    """Before a child runs this code, while it lives afterwards, and when it has ended."""
    command = [sys.executable, "-c", _PARENT, what, code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [float(figure) for figure in done.stdout.split()]


def test_a_child_that_computes_counts_while_it_runs_and_after_it_has_ended() -> None:
    before, alive, ended = measured("cpu", "sum(range(30_000_000))")

    assert alive > before
    assert ended >= alive


def test_memory_that_a_child_has_given_back_still_counts_while_the_child_runs() -> None:
    before, alive, _ = measured("memory", "held = b'x' * 300_000_000; del held")

    assert alive > before + 300


def test_sizes_of_directories_are_sums_over_all_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one").write_bytes(b"x" * 1_500_000)
    (tmp_path / "two").write_bytes(b"x" * 500_000)

    assert size_mb(tmp_path) == 2.0
