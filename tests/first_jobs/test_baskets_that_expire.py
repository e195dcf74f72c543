"""List and map states with a time to live in processing time, read back after a restart."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, Row, StatefulProcessor

DAY = 86_400_000


class Baskets(StatefulProcessor):
    """Keeps for a day what a user has looked at and how much of what is in the basket."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getListState("seen", "item string", ttlDurationMs=DAY)
        self.basket = handle.getMapState("basket", "item string", "count int", ttlDurationMs=DAY)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.seen.appendValue((row.item,))
            (count,) = self.basket.getValue((row.item,)) or (0,)
            self.basket.updateValue((row.item,), (count + row.count_of,))
        yield Row(
            user=key[0],
            seen=[item for (item,) in self.seen.get()],
            basket={item: count for (item,), (count,) in self.basket.iterator()},
        )


def clicks(first: int) -> list[dict[str, Any]]:
    return [
        {"user": f"u{n % 8}", "item": f"i{n % 5}", "count_of": n % 3}
        for n in range(first, first + 80)
    ]


def plain(rows: list[dict[str, Any]]) -> dict[str, Any]:
    users: dict[str, Any] = {}
    for row in rows:
        seen, basket = users.setdefault(row["user"], ([], {}))
        seen.append(row["item"])
        basket[row["item"]] = basket.get(row["item"], 0) + row["count_of"]
    return users


def restored(store: Path, to: Path) -> dict[str, Any]:
    """The states of every user, of the files that `tidelog restore` writes."""
    command = [sys.executable, "-m", "tidelog", "restore", store, "--to", to, "--format", "jsonl"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    users: dict[str, Any] = {}
    for file in to.rglob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            if row["operator"] != "baskets" or row["kind"] not in ("list", "map"):
                continue
            seen, basket = users.setdefault(row["key"], ([], {}))
            assert row["encoding"] == "decoded" and row["expires_ms"]
            if row["state"] == "seen":
                seen.extend(element["item"] for element in row["value"])
            else:
                basket[row["entry"]["item"]] = row["value"]["count"]
    return users


def test_what_was_kept_is_there_after_a_restart_and_in_a_restored_file(tmp_path: Path) -> None:
    def job(*, follow: bool) -> Job:
        job = Job("shop")
        rows = job.source(JsonLines(tmp_path / "in", follow=follow))
        states = rows.key_by(lambda row: row.user).transform_with_state(
            Baskets, time_mode="processing", name="baskets"
        )
        states.sink(Files(tmp_path / "out"))
        return job

    def last() -> dict[str, Any]:
        rows = sorted(rows_of(tmp_path / "out"), key=lambda row: len(row["seen"]))
        return {row["user"]: (row["seen"], row["basket"]) for row in rows}

    add_rows(tmp_path / "in" / "clicks.jsonl", clicks(0))
    run(job(follow=True), tmp_path / "store", lambda: last() == plain(clicks(0)), parallelism=2)
    assert restored(tmp_path / "store", tmp_path / "first") == plain(clicks(0))
    add_rows(tmp_path / "in" / "clicks.jsonl", clicks(80))
    run(job(follow=True), tmp_path / "store", lambda: last() == plain(clicks(0) + clicks(80)))
    assert restored(tmp_path / "store", tmp_path / "second") == plain(clicks(0) + clicks(80))
