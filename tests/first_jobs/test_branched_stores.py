"""A job whose store is the beginning of another: by a savepoint, and by a fork."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tests.support import cli
from tidelog import Files, Job, JobArguments, JsonLines


def payments(first: int) -> list[dict[str, Any]]:
    return [{"number": n, "payer": f"p{n % 9}"} for n in range(first, first + 150)]


def numbered(arguments: JobArguments) -> Job:
    """Every payment with how many its payer has made so far."""
    job = Job("payments")
    assert arguments.input is not None and arguments.output is not None
    rows = job.source(JsonLines(arguments.input, follow=arguments.follow))
    pairs = rows.key_by(lambda row: row.payer).aggregate(
        lambda row: [row.number], lambda a, b: a + b, emit_updates=True
    )
    pairs.sink(Files(arguments.output, fields=("payer", "numbers")))
    return job


def tidelog(*arguments: object) -> None:
    done = cli.tidelog(*map(str, arguments))
    assert done.exit_code == 0, done.output


def start(inputs: Path, store: Path, output: Path, *more: object) -> None:
    job = f"{__name__}:numbered"
    tidelog("run", job, "--input", inputs, "--store", store, "--output", output, "--quiet", *more)


def by_payer(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The longest list of every payer: lists only grow."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if len(row["numbers"]) > len(found.get(row["payer"], [])):
            found[row["payer"]] = row["numbers"]
    return found


def expected(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for row in rows:
        numbers.setdefault(row["payer"], []).append(row["number"])
    return numbers


@pytest.mark.parametrize("how", ["savepoint", "fork"])
def test_both_stores_go_on_from_one_state_each_with_its_output(tmp_path: Path, how: str) -> None:
    inputs, store, output = tmp_path / "in", tmp_path / "store", tmp_path / "out"
    new_store, new_output = tmp_path / "new-store", tmp_path / "new-out"
    file = inputs / "payments.jsonl"
    add_rows(file, payments(0))
    followed = JobArguments(str(inputs), str(output), follow=True)

    def first_done() -> bool:
        return by_payer(rows_of(output)) == expected(payments(0))

    stopped = run(numbered(followed), store, first_done).stopped
    assert stopped is not None
    add_rows(file, payments(150))
    if how == "fork":
        tidelog("fork", f"{store}@{stopped.name}", new_store)
        start(inputs, new_store, new_output)
    else:
        start(inputs, new_store, new_output, "--from", f"{store}@{stopped.name}")
    add_rows(file, payments(300))
    run(numbered(JobArguments(str(inputs), str(output))), store)

    assert by_payer(rows_of(new_output)) == expected(payments(0) + payments(150))
    assert by_payer(rows_of(output)) == expected(payments(0) + payments(150) + payments(300))
    for found in (rows_of(output), rows_of(new_output)):
        steps = Counter((row["payer"], len(row["numbers"])) for row in found)
        assert set(steps.values()) == {1}
    assert all(len(row["numbers"]) > 150 // 9 for row in rows_of(new_output))
