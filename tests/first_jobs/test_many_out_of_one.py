"""One record that becomes three thousand, through buffers that hold few."""

from collections import Counter
from pathlib import Path

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines

EACH = 3_000


def test_every_piece_arrives_once(tmp_path: Path) -> None:
    rows = [{"document": f"d{n}", "pieces": EACH if n == 2 else n} for n in range(5)]
    add_rows(tmp_path / "in" / "documents.jsonl", rows)
    job = Job("pieces")
    pieces = job.source(JsonLines(tmp_path / "in")).flat_map(
        lambda row: ((row.document, n) for n in range(row.pieces))
    )
    pieces.sink(Files(tmp_path / "pieces", fields=("document", "piece")), name="pieces")
    totals = pieces.key_by(lambda piece: piece[1] % 101).aggregate(
        lambda piece: piece[1], lambda a, b: a + b
    )
    totals.sink(Files(tmp_path / "totals", fields=("rest", "total")), name="totals")
    small = {"buffer_records": 16, "buffer_bytes": 512, "channel_buffers": 1}
    run(job, tmp_path / "store", parallelism=2, **small)

    expected = [(row["document"], n) for row in rows for n in range(row["pieces"])]
    found = [(row["document"], row["piece"]) for row in rows_of(tmp_path / "pieces")]
    assert sorted(found) == sorted(expected)
    sums: Counter[int] = Counter()
    for _, n in expected:
        sums[n % 101] += n
    totals_found = [(row["rest"], row["total"]) for row in rows_of(tmp_path / "totals")]
    assert sorted(totals_found) == sorted(sums.items())
