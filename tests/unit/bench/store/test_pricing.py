"""The bill of a day: one price times one quantity per line, at the books' list prices."""

import pytest

from tidelog.cost.prices import built_in_books
from tidelog.errors import ConfigError
from tidelog_bench.store.modelled import Traffic, daily

GB = 1 << 30


def test_a_put_a_second_costs_its_price_86_400_times_a_day() -> None:
    assert daily(Traffic(1, {"put": 1}, 0)).total == pytest.approx(86.4 * 0.005)


def test_every_kind_has_its_own_price() -> None:
    per_kind = {kind: daily(Traffic(86.4, {kind: 1}, 0)).requests for kind in ("get", "list")}
    assert per_kind == pytest.approx({"get": 0.0004, "list": 0.005})
    same = daily(Traffic(86.4, {"copy": 1, "mkdirs": 1, "head": 1, "delete": 1}, 0))
    assert same.requests == pytest.approx(2 * 0.005 + 0.0004 + 0.0)


def test_a_gb_stored_costs_a_share_of_its_month() -> None:
    found = daily(Traffic(10, {}, 0, stored_bytes=GB))
    assert found.storage == pytest.approx(0.023 * 24 / 730)
    assert found.total == found.storage


def test_bytes_cost_where_the_provider_asks_for_them() -> None:
    express = built_in_books()["aws-s3-express"]
    found = daily(Traffic(86_400, {}, 2 * GB, downloaded_bytes=GB), express)
    assert found.transfer == pytest.approx(2 * 0.0032 + 0.0006)
    assert daily(Traffic(86_400, {}, 2 * GB)).transfer == 0.0


def test_the_bill_does_not_depend_on_how_long_was_measured() -> None:
    short = daily(Traffic(10, {"put": 5, "list": 1}, 0, stored_bytes=GB)).total
    long = daily(Traffic(40, {"put": 20, "list": 4}, 0, stored_bytes=GB)).total
    assert short == pytest.approx(long)


@pytest.mark.parametrize("traffic", [Traffic(1, {"rename": 1}, 0), Traffic(0, {"put": 1}, 0)])
def test_what_has_no_price_and_what_took_no_time_is_refused(traffic: Traffic) -> None:
    with pytest.raises(ConfigError, match="measured traffic"):
        daily(traffic)
