"""Revenue by country: JSON lines in, one total for each country out.

tidelog run revenue.py:job --input data/orders --output out/revenue --store out/revenue-store
"""

from dataclasses import dataclass

from tidelog import FileSink, Job, JsonLinesSource


@dataclass
class Arguments:
    input: str
    output: str


def job(arguments: Arguments) -> Job:
    job = Job("revenue")
    orders = job.source(JsonLinesSource(arguments.input))
    totals = orders.key_by(lambda order: order.country).sum(lambda order: order.amount)
    totals.sink(FileSink(arguments.output, fields=("country", "revenue")))
    return job
