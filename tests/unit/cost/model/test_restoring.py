"""What a restore asks for, and the LIST that every checkpoint makes."""

from dataclasses import replace

import pytest

from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.restoring import Fetch, Objects, reads, restore_s
from tidelog.cost.model.settings import Settings, StoreLink
from tidelog.cost.model.workload import Workload
from tidelog.cost.prices import bill, built_in_books


def test_every_book_bills_a_list_per_checkpoint() -> None:
    # A checkpoint a second is 2,628,000 in a month of 730 hours; nothing is restored.
    settings = replace(Settings(), restores_per_month=0.0)
    workload = Workload(1_000, 10_000)
    for estimate in (
        estimate_changelog(workload, settings),
        estimate_incremental(workload, settings),
    ):
        for book in built_in_books().values():
            billed = bill(book, estimate.usage).list
            assert billed == pytest.approx(2_628 * book.list_per_1000 / estimate.cycle_s)


def test_300_checkpoints_are_read_16_at_a_time() -> None:
    settings = Settings(link=StoreLink(bytes_per_s=50e6, latency_s=0.03))
    few, many = (_fetch(slots=count) for count in (3, 300))
    more = restore_s(many, settings) - restore_s(few, settings)
    assert more == pytest.approx(297 / 16 * 0.03)


def test_more_processes_ask_for_more_and_take_as_long() -> None:
    fetch = _fetch(slots=3)
    one, four = Settings(), Settings(parallelism=4, processes=4)
    few, many = reads(fetch, one, 1.0), reads(fetch, four, 1.0)
    assert (many.gets, many.lists) == pytest.approx((4 * few.gets, 4 * few.lists))
    assert restore_s(fetch, four) == restore_s(fetch, one)


def _fetch(slots: int) -> Fetch:
    some = Objects(4, 4e4)
    return Fetch(Objects(slots, 0.0), some, some, Objects(50, 1e9), Objects(50, 1e6), changes=1e6)
