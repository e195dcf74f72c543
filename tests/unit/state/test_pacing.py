"""How long requests for parts may take, and what reads may fetch before the files are here."""

from itertools import islice, pairwise

from tidelog.state.recovery.pacing import FIRST_BYTES, LEAST_S, Patience, bytes_for_reads

GB = 10**9


def test_the_last_attempt_at_a_request_has_no_limit() -> None:
    attempts = list(islice(Patience().attempts(), 6))
    assert attempts == [LEAST_S, LEAST_S, 4 * LEAST_S, None, None, None]


def test_requests_get_more_time_where_many_are_late_and_less_where_few_are() -> None:
    patience = Patience()
    patience.seen(255, 200)
    assert patience.seconds == LEAST_S  # too few to judge by
    for _ in range(3):
        patience.seen(256, 100)
    assert patience.seconds == 8 * LEAST_S
    patience.seen(256, 8)
    assert patience.seconds == 8 * LEAST_S
    for _ in range(5):
        patience.seen(256, 0)
    assert patience.seconds == LEAST_S


def test_reads_may_fetch_some_before_the_first_file_and_more_with_each_byte_that_comes() -> None:
    least, most = FIRST_BYTES
    assert bytes_for_reads(GB // 1000, 0) == least
    assert bytes_for_reads(100 * GB, 0) == most
    shares = [(bytes_for_reads(10 * GB, arrived * GB) - most) / (10 * GB) for arrived in range(11)]
    steps = [later - earlier for earlier, later in pairwise(shares)]
    assert all(0 < later < earlier for earlier, later in pairwise(steps))
    assert 0.1 < shares[-1] < 0.15
    # Tails count as arrived when a file begins to come, so it may be a little more than all.
    assert bytes_for_reads(GB, GB + 1) == bytes_for_reads(GB, GB)
