"""The first order of each user and product; later ones are left out for a day.

tidelog run first_orders.py:job --input data/orders --output out/first --store out/first-store
"""

from dataclasses import dataclass

from tidelog import FileSink, Job, JsonLinesSource


@dataclass
class Arguments:
    input: str
    output: str


def job(arguments: Arguments) -> Job:
    job = Job("first-orders")
    orders = job.source(JsonLinesSource(arguments.input))
    first = orders.key_by(lambda order: (order.user, order.product)).deduplicate(ttl="1d")
    first.map(lambda order: order.asDict()).sink(FileSink(arguments.output))
    return job
