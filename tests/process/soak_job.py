"""A job that goes on for ever: windows close all the time, and counts of many keys change."""

from tidelog import Callback, Job, Rate, Tumbling

PER_S = 15_000
WINDOW_KEYS = 2_000
COUNTED_KEYS = 100_000


def job() -> Job:
    """Five-second windows, and one count for each of a hundred thousand keys."""
    job = Job("soak")
    numbers = job.source(Rate(PER_S, make=lambda n: (n % WINDOW_KEYS, n * 1000 // PER_S, n)))
    by_key = numbers.event_time(lambda r: r[1]).key_by(lambda r: r[0])
    windows = by_key.window(Tumbling(5_000)).aggregate(lambda r: 1, lambda a, b: a + b)
    windows.sink(Callback(lambda window: None), name="windows")
    counted = numbers.key_by(lambda r: r[2] % COUNTED_KEYS)
    counts = counted.aggregate(lambda r: 1, lambda a, b: a + b)
    counts.sink(Callback(lambda count: None), name="counts")
    return job
