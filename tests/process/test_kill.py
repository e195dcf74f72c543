"""A job that is killed at any moment, and started again, ends as if nothing had happened."""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.process import harness
from tests.process.harness import Run
from tests.wire.servers import S3Server
from tidelog.examples.sessions import event

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
KILLS = int(os.environ.get("TIDELOG_TEST_KILLS", "3"))


def write_words(run: Run, lines: int, files: int = 3) -> Counter[str]:
    """Numbered lines of words, some bytes of them broken; returns what Counter makes of them."""
    rng = random.Random(lines)
    counts: Counter[str] = Counter()
    for file in range(files):
        data = b""
        for line in range(lines):
            words = [f"w{min(rng.randrange(400), rng.randrange(400))}".encode() for _ in range(5)]
            data += b"%d-%d %s \xff\xc3 caf\xc3\xa9\n" % (file, line, b" ".join(words))
        (run.input / f"{file}.txt").write_bytes(data)
        counts.update(data.decode("utf-8", "replace").split())
    return counts


def killed_often(run: Run, look: Callable[[], None]) -> None:
    """Let a job run to its end, killing it many times on the way."""
    rng = random.Random(f"{SEED} {run.job} {run.options}")
    print(f"seed {SEED}:", *run.command)
    for _ in range(KILLS):
        harness.kill_before_release(run, rng, look)
    run.release()
    print(harness.kill_until_finished(run, rng, look, most=2), "more kills")


def options(*, parallelism: int, changelog: bool, mode: str) -> tuple[str, ...]:
    log = "--changelog" if changelog else "--no-changelog"
    return ("--parallelism", str(parallelism), log, "--mode", mode)


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("changelog", [True, False], ids=["changelog", "no-changelog"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_killed_word_count_counts_every_word_right(
    tmp_path: Path, parallelism: int, changelog: bool, mode: str
) -> None:
    chosen = options(parallelism=parallelism, changelog=changelog, mode=mode)
    run = Run(tmp_path, "tests.process.jobs:wordcount", chosen)
    expected = write_words(run, 2_500)

    def no_word_occurs_twice() -> None:
        words = [record["word"] for record in run.records()]
        assert len(words) == len(set(words))

    killed_often(run, no_word_occurs_twice)
    no_word_occurs_twice()
    counts = {record["word"]: record["count"] for record in run.records()}
    if mode == "exactly-once" or parallelism == 1:  # one channel needs no alignment
        assert counts == expected
    else:
        assert counts.keys() == expected.keys()
        assert all(counts[word] >= expected[word] for word in expected)


@pytest.mark.parametrize("changelog", [True, False], ids=["changelog", "no-changelog"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_killed_copy_shows_no_line_twice_at_any_time_and_all_in_the_end(
    tmp_path: Path, parallelism: int, changelog: bool
) -> None:
    chosen = options(parallelism=parallelism, changelog=changelog, mode="exactly-once")
    run = Run(tmp_path, "tests.process.jobs:copy", chosen)
    write_words(run, 2_500)

    def no_line_occurs_twice() -> None:
        lines = run.lines()
        assert len(lines) == len(set(lines))

    killed_often(run, no_line_occurs_twice)
    texts = [path.read_text("utf-8", "replace") for path in run.input.iterdir()]
    assert sorted(run.lines()) == sorted(
        line for text in texts for line in text.split("\n") if line
    )


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    ("job", "table", "names"),
    [
        ("sessions", "rocksdb", ("user", "number")),
        ("sessions", "memory", ("user", "number")),
        ("windows", "rocksdb", ("user", "start_ms")),
    ],
)
def test_killed_timers_fire_as_undisturbed_ones_do(
    tmp_path: Path, job: str, table: str, names: tuple[str, str], parallelism: int
) -> None:
    chosen = (
        *options(parallelism=parallelism, changelog=True, mode="exactly-once"),
        "--table",
        table,
    )
    run = Run(tmp_path / "killed", f"tests.process.jobs:{job}", chosen)
    write_events(run)

    def nothing_fired_twice() -> None:
        fired = [tuple(map(record.get, names)) for record in run.records()]
        assert len(fired) == len(set(fired))

    killed_often(run, nothing_fired_twice)
    nothing_fired_twice()
    calm = Run(tmp_path / "calm", run.job, chosen)
    write_events(calm)
    calm.release()
    calm.finish()
    assert sorted(run.lines()) == sorted(calm.lines())
    assert len(run.lines()) > 100


def write_events(run: Run) -> None:
    events = [msgspec.json.encode(event(number).asDict()) for number in range(4_000)]
    (run.input / "events.jsonl").write_bytes(b"\n".join(events) + b"\n")


def test_a_word_count_killed_over_s3_counts_every_word_right(tmp_path: Path, s3: S3Server) -> None:
    client = s3.client()

    def slot_names() -> list[str]:
        listed = client.list_objects_v2(Bucket=s3.bucket, Prefix="killed/checkpoints/")
        return [entry["Key"] for entry in listed.get("Contents", ())]

    run = Run(
        tmp_path,
        "tests.process.jobs:wordcount",
        options(parallelism=1, changelog=True, mode="exactly-once"),
        store=s3.url("killed"),
        env=s3.env,
        slot_names=slot_names,
    )
    expected = write_words(run, 1_500)
    killed_often(run, lambda: None)
    assert {record["word"]: record["count"] for record in run.records()} == expected
