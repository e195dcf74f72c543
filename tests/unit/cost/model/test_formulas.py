"""The rules of thumb, by hand."""

import pytest

from tidelog.cost.model.formulas import log_peak_bytes, window_log_peak_bytes
from tidelog.cost.prices import built_in_books


def test_the_log_peaks_at_what_is_written_in_an_interval() -> None:
    assert log_peak_bytes(10_000, 50, 600) == 300e6


def test_a_window_and_its_timer_are_written_and_deleted() -> None:
    # 100 windows a second of 60 bytes, each with a timer of 30, cut every 10 minutes.
    peak = window_log_peak_bytes(100, 100, 60, 30, 600)
    assert peak == 2 * 100 * (60 + 30) * 600


def test_200_yuan_a_month_store_about_1_6_tb_at_alibaba() -> None:
    book = built_in_books()["aliyun-oss-standard"]
    assert (book.storage_gb_month, book.currency) == (0.12, "CNY")
    assert 200 / book.storage_gb_month == pytest.approx(1_666.7, abs=0.1)
