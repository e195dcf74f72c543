"""Revenue by country, from JSON lines that come in; the job of the containers."""

from tidelog import FileSink, Job, JobArguments, JsonLinesSource


def job(arguments: JobArguments) -> Job:
    job = Job("revenue")
    orders = job.source(JsonLinesSource(arguments.input, follow=arguments.follow))
    totals = orders.key_by(lambda order: order.country).sum(
        lambda order: order.amount, emit_updates=True
    )
    totals.sink(FileSink(arguments.output, fields=("country", "revenue"), roll_every=2))
    return job
