"""A deep run goes on where an earlier one stopped, on the same sources only.

What runs outside of deep runs leave out.

Each worker of a run begins with tests that take long.
"""

import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.deep import PARTS, SLICE, Memory, Outcome, Step, all_steps, run_due, summary, tree_of
from tests.order import dealt
from tests.spark.conftest import IN_EVERY_RUN
from tests.support.depth import covering

STEPS = [Step(name, name, []) for name in ("first", "second", "third")]


@dataclass
class Runs:
    """Runs of all steps: which of them were begun, and how those end that do not pass."""

    path: Path
    ends: dict[str, str] = field(default_factory=dict)
    stopped_at: str = ""
    begun: list[str] = field(default_factory=list)
    after: str = ""
    """The sources after a step, if they are others then."""

    def go(self, tree: str = "tree") -> list[str]:
        self.begun.clear()
        memory = Memory.load(self.path, tree)
        outcomes: dict[str, Outcome] = {}
        with suppress(KeyboardInterrupt):
            run_due(STEPS, memory, outcomes, self._run, lambda: self.after or tree)
        return summary(STEPS, memory, outcomes)

    def _run(self, step: Step) -> Outcome:
        if step.name == self.stopped_at:
            raise KeyboardInterrupt
        self.begun.append(step.name)
        return Outcome(self.ends.get(step.name, "passed"), 61.0, f"{step.name} ended")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "deep.json")


def test_all_steps_that_pass_at_once_are_a_whole(runs: Runs) -> None:
    assert runs.go()[-1] == "sources tree: passed as a whole"
    assert runs.begun == ["first", "second", "third"]


def test_an_interrupted_run_goes_on_where_it_stopped(runs: Runs) -> None:
    runs.stopped_at = "second"
    assert runs.go()[-1] == "sources tree: not passed as a whole, for second, third"
    runs.stopped_at = ""
    lines = runs.go()
    assert runs.begun == ["second", "third"]
    assert lines[-1] == "sources tree: passed as a whole"
    assert next(line for line in lines if line.startswith("first ")).endswith("ended (earlier)")


@pytest.mark.parametrize("end", ["FAILED", "skipped"])
def test_what_has_not_passed_is_run_again_and_alone(runs: Runs, end: str) -> None:
    runs.ends = {"second": end}
    assert runs.go()[-1] == "sources tree: not passed as a whole, for second"
    assert runs.begun == ["first", "second", "third"], "the others are run all the same"
    runs.ends = {}
    assert runs.go()[-1] == "sources tree: passed as a whole"
    assert runs.begun == ["second"]


def test_other_sources_have_passed_nothing(runs: Runs) -> None:
    runs.go()
    runs.go(tree="another")
    assert runs.begun == ["first", "second", "third"]


def test_a_step_whose_sources_changed_meanwhile_does_not_count(runs: Runs) -> None:
    runs.after = "edited"
    assert "not passed as a whole, for first, second, third" in runs.go()[-1]


def test_the_seeds_of_a_tree_stay_the_same_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    first = Memory.load(path, "tree")
    first.save()
    assert Memory.load(path, "tree").first_seed == first.first_seed
    assert Memory.load(path, "another").first_seed != first.first_seed


def test_every_seed_is_in_one_slice_and_every_part_has_a_step() -> None:
    steps = all_steps(2 * SLICE + 5, first_seed=1_000)
    seeds: list[int] = []
    for step in steps:
        if step.part == "simulation":
            count, first = (
                int(step.arguments[step.arguments.index(option) + 1])
                for option in ("--seeds", "--first-seed")
            )
            seeds += range(first, first + count)
    assert seeds == list(range(1_000, 1_000 + 2 * SLICE + 5))
    assert {step.part for step in steps} == set(PARTS)
    assert len({step.name for step in steps}) == len(steps)


def test_every_file_of_tests_is_in_one_part() -> None:
    root = Path(__file__).parents[2]
    chosen: dict[str, int] = {}
    for step in all_steps(0, 0):
        ignored = [each.partition("=")[2] for each in step.arguments if "=" in each]
        for given in (each for each in step.arguments if each.startswith("tests")):
            found = root / given
            for file in [found] if found.is_file() else found.rglob("test_*.py"):
                name = str(file.relative_to(root))
                if not any(name == path or name.startswith(f"{path}/") for path in ignored):
                    chosen[name] = chosen.get(name, 0) + 1
    everything = {str(file.relative_to(root)) for file in (root / "tests").rglob("test_*.py")}
    assert chosen == dict.fromkeys(everything, 1)


def test_a_tree_is_known_by_its_tracked_sources_as_they_are_on_disk(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for folder in ("src", "native", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text(folder)
    (tmp_path / "pyproject.toml").write_text("")
    git("add", ".")
    tree = tree_of(tmp_path)
    (tmp_path / "README.md").write_text("of no concern")
    (tmp_path / "src" / "untracked").write_text("of no concern")
    assert tree_of(tmp_path) == tree
    (tmp_path / "native" / "a").write_text("edited")
    edited = tree_of(tmp_path)
    assert edited != tree
    (tmp_path / "native" / "a").unlink()
    assert tree_of(tmp_path) not in (tree, edited)


CASES = list(product(range(3), range(2), range(4), range(2)))


@pytest.mark.parametrize("meeting", [1, 2, 3])
def test_so_many_values_meet_in_fewer_cases(meeting: int) -> None:
    chosen = covering(CASES, meeting)
    assert len(chosen) < len(CASES)
    for positions in combinations(range(4), meeting):
        met = {tuple(case[position] for position in positions) for case in chosen}
        assert met == {tuple(case[position] for position in positions) for case in CASES}


def test_no_more_values_than_meet_are_combined_in_full() -> None:
    cases = list(product(range(3), range(2)))
    assert sorted(covering(cases, 2)) == cases


def test_every_part_of_the_tests_with_spark_that_is_never_left_out_exists() -> None:
    spark = Path(__file__).parents[1] / "spark"
    assert [name for name in IN_EVERY_RUN if not any(spark.glob(name.rstrip("/") + "*"))] == []


def test_each_equal_part_of_the_list_begins_with_long_tests() -> None:
    order = dealt(["ab", "c", "d"], "1234567", workers=3)
    assert "".join(order) == "ab1" + "c234" + "d567"


def test_more_groups_than_workers_follow_one_another() -> None:
    assert "".join(dealt(["ab", "c", "d"], "1234", workers=2)) == "abd1" + "c234"


def test_a_group_that_is_longer_than_a_part_loses_no_test() -> None:
    assert "".join(dealt(["abcdefg", "h"], "1", workers=2)) == "abcdefg" + "h1"
    assert "".join(dealt(["", ""], "12", workers=4)) == "12"
