"""Requests between two counts: what happened there, and nothing that was before."""

from tidelog_bench.spark.counts import Sum, by_kind, difference, parse_counts, requests, transferred

EARLY = "get sst 4 400\nput changelog 8 1000\nput zip 1 50"
BEFORE = parse_counts(EARLY)
AFTER = parse_counts("get sst 4 400\nlist state 2 0\nput changelog 24 3000\nput zip 3 150")


def test_lines_of_the_file_system_are_kinds_classes_numbers_and_bytes() -> None:
    assert parse_counts(EARLY) == {
        ("get", "sst"): Sum(4, 400),
        ("put", "changelog"): Sum(8, 1000),
        ("put", "zip"): Sum(1, 50),
    }


def test_the_difference_leaves_out_what_did_not_happen_in_between() -> None:
    assert difference(AFTER, BEFORE) == {
        ("list", "state"): Sum(2, 0),
        ("put", "changelog"): Sum(16, 2000),
        ("put", "zip"): Sum(2, 100),
    }


def test_requests_and_bytes_are_summed_over_classes_of_files() -> None:
    between = difference(AFTER, BEFORE)
    assert requests(between) == 20
    assert requests(between, "put") == 18
    assert requests(between, "get") == 0
    assert transferred(between, "put") == 2100


def test_requests_per_batch_are_split_by_kind_and_class() -> None:
    between = difference(AFTER, BEFORE)
    assert by_kind(between, 3) == {
        "list": {"state": 0.667},
        "put": {"changelog": 5.333, "zip": 0.667},
    }
