"""The two products with the largest orders of each hour, by event time.

tidelog run top_products.py:job --input data/orders --output out/top --store out/top-store
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidelog import FileSink, Job, JsonLinesSource, Tumbling


@dataclass
class Arguments:
    input: str
    output: str


def lines(window: Any) -> Iterator[dict[str, Any]]:
    country, start_ms, orders = window
    for rank, order in enumerate(orders, 1):
        yield {"country": country, "hour_ms": start_ms, "rank": rank, "product": order.product}


def job(arguments: Arguments) -> Job:
    job = Job("top-products")
    orders = job.source(JsonLinesSource(arguments.input))
    timed = orders.event_time(lambda order: order.ms, max_delay_ms="1m")
    hours = timed.key_by(lambda order: order.country).window(Tumbling("1h"))
    hours.top(2, by=lambda order: order.amount).flat_map(lines).sink(FileSink(arguments.output))
    return job
