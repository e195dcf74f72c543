"""Two outputs of one stream: large orders, and a short line for each order.

tidelog run large_orders.py:job --input data/orders --output out/orders --store out/orders-store -- --limit 40
"""

from dataclasses import dataclass

from tidelog import FileSink, Job, JsonLinesSource


@dataclass
class Arguments:
    input: str
    output: str
    limit: int = 30


def job(arguments: Arguments) -> Job:
    job = Job("large-orders")
    orders = job.source(JsonLinesSource(arguments.input))
    large = orders.filter(lambda order: order.amount >= arguments.limit)
    large.map(lambda order: order.asDict()).sink(
        FileSink(f"{arguments.output}/large"), name="large"
    )
    lines = orders.map(lambda order: f"{order.order}: {order.amount} from {order.country}")
    lines.sink(FileSink(f"{arguments.output}/lines", format="text"), name="lines")
    return job
