"""Price books fit their schema, name their sources, and say when they are out of date; bills by
hand."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.documentation import ROOT
from tidelog.cost.model.usage import MONTH_S, Flow, Reads, Usage
from tidelog.cost.prices import (
    GOOD_FOR,
    PriceBook,
    bill,
    billed_bytes,
    built_in_books,
    choose_books,
    read_book,
)
from tidelog.errors import ConfigError

BOOKS = built_in_books()

OWN = """
provider = "cellar"
title = "The disks in the cellar"
region = "at home"
currency = "EUR"
as_of = 2026-01-31
gb_bytes = 1000000000
storage_gb_month = 0.01
put_per_1000 = 0.0
list_per_1000 = 0.0
get_per_1000 = 0.0
delete_per_1000 = 0.0
sources = [{ url = "the electricity bill", says = "storage" }]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "cellar.toml"
    path.write_text(OWN)
    return path


def test_the_clouds_that_are_asked_for_are_there() -> None:
    assert set(BOOKS) == {
        "aws-s3-standard",
        "aws-s3-express",
        "gcp-storage-standard",
        "azure-blob-hot",
        "aliyun-oss-standard",
        "self-hosted",
    }
    assert {book.currency for book in BOOKS.values()} == {"USD", "CNY"}


@pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
def test_a_book_is_believed_for_a_year_and_then_warns(book: PriceBook) -> None:
    last = book.as_of + GOOD_FOR
    assert book.warning(last) is None
    warning = book.warning(last + timedelta(days=1))
    assert warning is not None
    assert book.provider in warning and book.as_of.isoformat() in warning
    assert "--prices FILE" in warning


def test_a_book_of_ones_own_is_toml_or_json(own: Path, tmp_path: Path) -> None:
    book = read_book(own)
    assert (book.provider, book.currency, book.egress_gb) == ("cellar", "EUR", None)
    as_json = tmp_path / "cellar.json"
    as_json.write_bytes(msgspec.json.encode(book))
    assert read_book(as_json) == book


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("storage_gb_month = 0.01", "storage_gb_month = -1", "storage_gb_month"),
        ("storage_gb_month = 0.01", "", "storage_gb_month"),
        ("storage_gb_month", "storage_per_gb", "storage_per_gb"),
        ('"EUR"', '"euro"', "currency"),
        ("2026-01-31", "yesterday", ""),
        ("gb_bytes = 1000000000", "gb_bytes = 0", "gb_bytes"),
        ("gb_bytes = 1000000000", "gb_bytes = 1", "gb_bytes"),
        ("storage_gb_month = 0.01", "storage_gb_month = inf", "storage_gb_month is inf"),
        ("put_per_1000 = 0.0", "put_per_1000 = nan", "put_per_1000"),
        (
            'sources = [{ url = "the electricity bill", says = "storage" }]',
            "sources = []",
            "sources",
        ),
        ('"cellar"', '"The Cellar"', "provider"),
    ],
)
def test_a_book_that_does_not_fit_is_refused(own: Path, old: str, new: str, said: str) -> None:
    own.write_text(OWN.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_book(own)
    assert said in str(caught.value)
    assert str(own) in caught.value.what
    assert "docs/guides/estimate.md" in str(caught.value)


def test_ones_own_book_is_used_alone_or_beside_named_ones(own: Path) -> None:
    cellar = read_book(own)
    assert choose_books([], [cellar]) == [cellar]
    both = choose_books(["aws-s3-standard", "cellar"], [cellar])
    assert [book.provider for book in both] == ["aws-s3-standard", "cellar"]


def test_the_documentation_lists_every_field_and_every_book() -> None:
    document = (ROOT / "docs" / "guides" / "estimate.md").read_text()
    section = document[document.index("## Price books") : document.index("## Limits")]
    for field in PriceBook.__struct_fields__:
        assert f"`{field}`" in section
    for book in BOOKS.values():
        (row,) = (line for line in section.splitlines() if line.startswith(f"| `{book.provider}`"))
        assert book.currency in row and book.as_of.isoformat() in row


GB = 2**30
MONTHLY = 1 / MONTH_S


def book(**changes: float) -> PriceBook:
    free = dict.fromkeys(("storage_gb_month", "put_per_1000", "list_per_1000", "get_per_1000"), 0.0)
    base = built_in_books()["aws-s3-standard"]
    return replace(base, **{**free, "egress_gb": 0.0, **changes})


@pytest.mark.parametrize(
    ("prices", "flow", "reads", "line", "expected"),
    [
        # An object of 1 GB every 100 s that lives for 300 s: three of them at any time.
        ({"storage_gb_month": 0.023}, Flow("a", 0.01, GB, 300), {}, "storage", 3 * 0.023),
        # A request a second is 2,628,000 in a month of 730 hours.
        ({"put_per_1000": 5.0}, Flow("a", 1.0, 1, 1), {}, "put", 2_628 * 5),
        ({"delete_per_1000": 13.0}, Flow("a", 1.0, 1, 1), {}, "delete", 2_628 * 13),
        ({"list_per_1000": 7.0}, Flow("a", 1.0, 1, 1), {"lists": 2.0}, "list", 2_628 * 14),
        ({"get_per_1000": 11.0}, Flow("a", 1.0, 1, 1), {"gets": 3.0}, "get", 2_628 * 33),
        ({"upload_gb": 0.5}, Flow("a", MONTHLY, 10 * GB, 1), {}, "transfer", 5.0),
        (
            {"retrieval_gb": 0.25, "egress_gb": 2.0},
            *(Flow("a", MONTHLY, 1, 1), {"bytes": 4 * GB * MONTHLY}, "transfer", 1.0),
        ),
    ],
)
def test_a_line_of_a_bill_is_a_price_times_a_quantity(
    prices: dict[str, float], flow: Flow, reads: dict[str, float], line: str, expected: float
) -> None:
    usage = Usage((flow,), Reads(**reads))
    found = bill(book(**prices), usage)
    assert getattr(found, line) == found.total == pytest.approx(expected)
    sent = bill(book(**prices), usage, egress=True)
    assert sent.total == pytest.approx(expected + 8.0 * ("egress_gb" in prices))


def test_short_lived_and_small_objects_are_billed_for_the_minimum() -> None:
    flow = Flow("segment", 1.0, 1_000, 10)
    assert billed_bytes(book(), flow) == 10_000
    assert billed_bytes(book(minimum_storage_s=3_600), flow) == 3_600_000
    assert billed_bytes(book(minimum_object_bytes=65_536), flow) == 655_360


def test_an_express_month_of_aws_s_own_example() -> None:
    # "10 GB for 30 days, 1,000,000 writes, 9,000,000 reads of 10 KB": 2.58 USD, storage 1.10.
    express = built_in_books()["aws-s3-express"]
    flow = Flow("object", 1e6 / MONTH_S, 10 * 1_024, 10 * GB / (1e6 / MONTH_S) / (10 * 1_024))
    reads = {"gets": 9e6 / MONTH_S, "bytes": 9e6 * 10 * 1_024 / MONTH_S}
    found = bill(express, Usage((flow,), Reads(**reads)))
    assert found.storage == pytest.approx(1.10, abs=0.01)
    assert found.put == pytest.approx(1.13, abs=0.01)
    assert found.get == pytest.approx(0.27, abs=0.01)
    assert found.transfer == pytest.approx(0.03 + 0.05, abs=0.01)
    assert found.total == pytest.approx(2.58, abs=0.02)
