"""The JVM that pyspark keeps in this process, also after the session was stopped.

Invariant: a session that `configure` prepares never starts on a JVM that lacks the plug-in. Spark
reads spark.jars into the driver's class path only when the JVM starts.
"""

import logging
import sys
from typing import Any

from tidelog.errors import ConfigError
from tidelog.events import Event

logger = logging.getLogger(__name__)


def check_running_context(setting: str, plugin: str) -> None:
    """Raise ConfigError if a SparkContext runs whose `setting` does not name `plugin`.

    Plug-ins are started with the SparkContext: later it is too late.
    """
    context = getattr(_pyspark_context(), "_active_spark_context", None)
    if context is None:
        return
    plugins = context.getConf().get(setting, "")
    if plugin not in plugins.split(","):
        raise ConfigError(
            "the SparkContext that runs in this process",
            expected=f"{plugin} among its {setting}",
            found=plugins or "no plug-in",
            action="stop it, for example with spark.stop(), then build the session again",
        )


def end_jvm_without(plugin: str) -> None:
    """End the JVM of a stopped session if it cannot load `plugin`; the next session starts one.

    Raises ConfigError if that JVM is not this process's own, but that of spark-submit.
    """
    context = _pyspark_context()
    gateway = getattr(context, "_gateway", None)
    if gateway is None or _loads(gateway, plugin):
        return
    if getattr(gateway, "proc", None) is None:
        raise ConfigError(
            "the driver that spark-submit started",
            expected=f"{plugin} on its class path",
            found="no such class",
            action="pass the settings of `tidelog spark conf` to spark-submit",
        )
    Event.JVM_ENDED.log(logger, plugin=plugin)
    end_jvm(context)


def end_jvm(context: Any) -> None:
    """End the JVM that pyspark started in this process and wait until it has gone.

    `context` is the class pyspark.SparkContext; no session may run.
    """
    gateway = context._gateway
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    gateway.proc.wait()


def _pyspark_context() -> Any:
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


def _loads(gateway: Any, name: str) -> bool:
    from py4j.protocol import Py4JError  # noqa: PLC0415  (comes with pyspark)

    java = gateway.jvm.java.lang
    try:
        java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JError:
        return False
    return True
