"""Bills, by hand."""

from dataclasses import fields

import pytest
from msgspec.structs import replace

from tidelog.cost.model.bill import Bill, bill, billed_bytes
from tidelog.cost.model.usage import MONTH_S, Flow, Reads, Usage
from tidelog.cost.prices import PriceBook, built_in_books

GB = 2**30


def book(**changes: float) -> PriceBook:
    free = dict.fromkeys(("storage_gb_month", "put_per_1000", "list_per_1000", "get_per_1000"), 0.0)
    base = built_in_books()["aws-s3-standard"]
    return replace(base, **{**free, "egress_gb": 0.0, **changes})


def usage(flow: Flow, **reads: float) -> Usage:
    return Usage((flow,), Reads(**reads))


def test_storage_is_what_lies_there_on_average() -> None:
    # An object of 1 GB every 100 s that lives for 300 s: three of them at any time.
    flow = Flow("segment", 1 / 100, GB, 300)
    found = bill(book(storage_gb_month=0.023), usage(flow))
    assert found.storage == found.total == pytest.approx(3 * 0.023)


def test_requests_are_counted_by_class() -> None:
    # A write a second is 2,628,000 in a month of 730 hours.
    flow = Flow("segment", 1.0, 1, 1)
    prices = {"put_per_1000": 5.0, "list_per_1000": 7.0, "get_per_1000": 11.0}
    found = bill(book(**prices, delete_per_1000=13.0), usage(flow, lists=2.0, gets=3.0))
    thousands = 2_628
    assert (found.put, found.list, found.get, found.delete) == pytest.approx(
        (thousands * 5, thousands * 2 * 7, thousands * 3 * 11, thousands * 13)
    )


def test_a_rename_is_a_copy_and_a_delete_more() -> None:
    once, renamed = (Flow("delta", 1.0, 1, 1, requests) for requests in (1.0, 2.0))
    priced = book(put_per_1000=1.0, delete_per_1000=1.0)
    assert bill(priced, usage(renamed)).put == 2 * bill(priced, usage(once)).put
    assert bill(priced, usage(renamed)).delete == 2 * bill(priced, usage(once)).delete


def test_bytes_cost_where_the_provider_charges_for_them() -> None:
    flow = Flow("segment", 1 / MONTH_S, 10 * GB, 1)
    reads = {"bytes": 4 * GB / MONTH_S}
    priced = book(upload_gb=0.5, retrieval_gb=0.25, egress_gb=2.0)
    assert bill(priced, usage(flow, **reads)).transfer == pytest.approx(10 * 0.5 + 4 * 0.25)
    out = bill(priced, usage(flow, **reads), egress=True)
    assert out.transfer == pytest.approx(10 * 0.5 + 4 * (0.25 + 2.0))


def test_short_lived_and_small_objects_are_billed_for_the_minimum() -> None:
    flow = Flow("segment", 1.0, 1_000, 10)
    assert billed_bytes(book(), usage(flow)) == 10_000
    assert billed_bytes(book(minimum_storage_s=3_600), usage(flow)) == 3_600_000
    assert billed_bytes(book(minimum_object_bytes=65_536), usage(flow)) == 655_360


def test_an_express_month_of_aws_s_own_example() -> None:
    # "10 GB for 30 days, 1,000,000 writes, 9,000,000 reads of 10 KB": 2.58 USD, storage 1.10.
    express = built_in_books()["aws-s3-express"]
    flow = Flow("object", 1e6 / MONTH_S, 10 * 1_024, 10 * GB / (1e6 / MONTH_S) / (10 * 1_024))
    reads = {"gets": 9e6 / MONTH_S, "bytes": 9e6 * 10 * 1_024 / MONTH_S}
    found = bill(express, usage(flow, **reads))
    assert found.storage == pytest.approx(1.10, abs=0.01)
    assert found.put == pytest.approx(1.13, abs=0.01)
    assert found.get == pytest.approx(0.27, abs=0.01)
    assert found.transfer == pytest.approx(0.03 + 0.05, abs=0.01)
    assert found.total == pytest.approx(2.58, abs=0.02)


def test_the_total_is_the_sum_of_all_lines() -> None:
    lines = [field.name for field in fields(Bill) if field.name not in ("provider", "currency")]
    amounts = {name: float(10**at) for at, name in enumerate(lines)}
    assert Bill("p", "USD", **amounts).total == sum(amounts.values())
