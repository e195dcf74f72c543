"""What the tables and the logs of several checkpoints share is read once by one worker."""

from collections import Counter

from tests.unit.verify.stores import (
    CountingStore,
    Objects,
    overlapping,
    report_on,
    small,
    with_objects,
)
from tidelog.storage import object_names
from tidelog.verify.verification import VerifyReport


def counted(objects: Objects) -> tuple[VerifyReport, Counter[str]]:
    store = with_objects(CountingStore(), objects)
    return report_on(store), store.bytes


def test_files_that_tables_of_several_checkpoints_share_are_read_once() -> None:
    report, read = counted(small())
    assert report.passed and len(report.checkpoints) == 4
    tables = {n: len(d) for n, d in small().items() if n.startswith(object_names.TABLES)}
    found = {name: read[name] for name in tables if read[name]}
    assert found and found == {name: tables[name] for name in found}


def test_log_is_read_for_each_table_below_it_not_for_each_checkpoint() -> None:
    report, read = counted(overlapping())
    assert report.passed and sum(checkpoint.equal for checkpoint in report.checkpoints) > 0
    log = {n: len(d) for n, d in overlapping().items() if n.startswith(object_names.SEGMENTS)}
    # In whole; above the materialization that checkpoints name, and above an older one.
    assert sum(read[name] for name in log) <= 3 * sum(log.values())
