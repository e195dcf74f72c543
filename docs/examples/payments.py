"""Orders with the payment that came within ten minutes after them, or with none.

tidelog run payments.py:job --output out/paid --store out/paid-store -- --orders data/orders --payments data/payments
"""

from dataclasses import dataclass

from tidelog import FileSink, Job, JsonLinesSource


@dataclass
class Arguments:
    output: str
    orders: str
    payments: str


def job(arguments: Arguments) -> Job:
    job = Job("payments")

    orders = job.source(JsonLinesSource(arguments.orders), name="orders")
    payments = job.source(JsonLinesSource(arguments.payments), name="payments")
    by_order = [
        stream.event_time(lambda row: row.ms).key_by(lambda row: row.order)
        for stream in (orders, payments)
    ]
    pairs = by_order[0].join(by_order[1], (0, "10m"), how="left")
    rows = pairs.map(lambda pair: (pair[0].order, pair[1] and pair[1].cents))
    rows.sink(FileSink(arguments.output, fields=("order", "cents")))
    return job
