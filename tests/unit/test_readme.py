"""What the README shows works as it is printed."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tests.support.documentation import BLOCKS
from tidelog import Effects, Files, Job, JobArguments, JobRunner, JsonLines
from tidelog.storage.memory import MemoryStore

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def example(position: int) -> dict[str, Any]:
    """The names a Python block of the README defines."""
    names: dict[str, Any] = {}
    exec(BLOCKS[f"README {position}"], names)
    return names


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.mkdir()
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def written(output: Path) -> list[dict[str, Any]]:
    lines = [line for part in output.glob("part-*") for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def run(job: Job) -> None:
    asyncio.run(JobRunner(job, MemoryStore("memory://readme"), effects=Effects()).run())


def test_the_revenue_job_of_the_readme_sums_by_country(tmp_path: Path) -> None:
    orders = [("nl", 3), ("at", 4), ("nl", 5)]
    rows = write_rows(tmp_path / "orders", [{"country": c, "amount": a} for c, a in orders])
    arguments = JobArguments(input=str(rows), output=str(tmp_path / "out"))
    run(example(0)["job"](arguments))
    found = sorted(written(tmp_path / "out"), key=lambda row: row["country"])
    assert found == [{"country": "at", "revenue": 4}, {"country": "nl", "revenue": 8}]


def test_the_streak_processor_of_the_readme_counts_days_in_a_row(tmp_path: Path) -> None:
    days = ["2026-03-01", "2026-03-02", "2026-03-04"]
    rows = write_rows(tmp_path / "visits", [{"user": "ada", "day": day} for day in days])
    job = Job("streaks")
    visits = job.source(JsonLines(str(rows)))
    streaks = visits.key_by(lambda row: row.user).transform_with_state(example(1)["Streak"])
    streaks.sink(Files(str(tmp_path / "out")))
    run(job)
    assert [row["streak"] for row in written(tmp_path / "out")] == [1, 2, 1]


def test_every_document_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links and [link for link in links if not (ROOT / link).exists()] == []
