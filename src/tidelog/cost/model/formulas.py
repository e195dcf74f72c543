"""Rules of thumb for the storage that a changelog adds.

Invariants: each function is its formula and nothing else; the estimate proper, which knows write
buffer, retention and staggering, is `changelog.py`. They size the state changelog of Apache Flink
(FLIP-158) as well, where the idea comes from.
"""


def log_peak_bytes(writes_per_s: float, bytes_per_write: float, interval_s: float) -> float:
    """Log that piles up until a materialization cuts it: what was written in one interval.

    `writes_per_s` counts what reaches the log, so after the write buffer has combined it;
    `bytes_per_write` is the size as stored.
    """
    return writes_per_s * bytes_per_write * interval_s


def window_log_peak_bytes(
    slices_per_s: float,
    timers_per_s: float,
    slice_bytes: float,
    timer_bytes: float,
    interval_s: float,
) -> float:
    """The same for windows: 2 x (slice + timer) rate x bytes x interval.

    Every slice and every timer is written once and deleted once, hence the 2; each counts with
    its own rate and its own bytes. A slice that is updated while it is open adds ordinary writes.
    Windows that share no slices, as those of Flink's window operator, are a slice each.
    """
    per_s = slices_per_s * slice_bytes + timers_per_s * timer_bytes
    return 2 * log_peak_bytes(1, per_s, interval_s)
