"""Options of a run that say where its metrics go."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from tidelog.runtime.status.status import JobStatus

R = TypeVar("R")


class MetricsOptions(NamedTuple):
    """Where the user wants the metrics."""

    port: int | None
    otel: bool
    otel_endpoint: str | None

    @contextmanager
    def listen(self) -> Iterator["Callable[[JobStatus], None]"]:
        """A function for every status of the job; raises ConfigError."""
        with ExitStack() as opened:
            updates = []
            # Few runs want metrics, so few pay for the modules.
            if self.port is not None:
                from tidelog.runtime.status.prometheus import serve_metrics  # noqa: PLC0415

                updates.append(opened.enter_context(serve_metrics(self.port)))
            if self.otel or self.otel_endpoint is not None:
                from tidelog.runtime.status.opentelemetry import export_metrics  # noqa: PLC0415

                updates.append(opened.enter_context(export_metrics(self.otel_endpoint)))

            def update(status: "JobStatus") -> None:
                for each in updates:
                    each(status)

            yield update


def metrics_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add --metrics-port, --otel and --otel-endpoint, as one argument `metrics`."""

    @click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics.")
    @click.option(
        "--otel",
        is_flag=True,
        help="Export metrics to an OpenTelemetry collector, as the OTEL_* variables say.",
    )
    @click.option(
        "--otel-endpoint",
        metavar="URL",
        help="Export metrics to this OpenTelemetry collector, such as http://127.0.0.1:4318; the "
        "OTEL_* variables say the rest.",
    )
    @functools.wraps(function)
    def command(
        metrics_port: int | None, otel: bool, otel_endpoint: str | None, **others: Any
    ) -> R:
        return function(metrics=MetricsOptions(metrics_port, otel, otel_endpoint), **others)

    return command
