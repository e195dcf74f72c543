package tidelog.spark

import java.util.{Map => JMap, UUID}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}

import tidelog.spark.driver.DriverSide
import tidelog.spark.executor.{Author, ExecutorSide, RunningTasks}
import tidelog.spark.index.SegmentCache
import tidelog.spark.rpc.Message

/** The plug-in's two sides; set it in `spark.plugins`.
  *
  * Invariant: a driver process has one `run`, eight random hexadecimal digits that its executors
  * put into the names of their segments, so no two processes ever write one object.
  */
class TidelogPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new TidelogDriver
  override def executorPlugin(): ExecutorPlugin = new TidelogExecutor
}

private final class TidelogDriver extends DriverPlugin {
  private var side: Option[DriverSide] = None

  override def init(spark: SparkContext, context: PluginContext): JMap[String, String] = {
    val run = UUID.randomUUID.toString.take(8)
    def query = Option(spark.getLocalProperty(RunningTasks.QueryProperty))
    val settings = Settings.of(context.conf)
    val driver = new DriverSide(run, settings, context.metricRegistry, () => query)
    side = Some(driver)
    DriverSide.set(side)
    spark.addSparkListener(new SparkListener {
      override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit =
        driver.executorRemoved(event.executorId)
    })
    JMap.of("run", run, "startMs", System.currentTimeMillis().toString)
  }

  override def receive(message: Object): Object = (message, side) match {
    case (known: Message, Some(driver)) => driver.receive(known)
    case (other, _) => throw new IllegalArgumentException(s"tidelog: unexpected message $other")
  }

  override def shutdown(): Unit = {
    side.foreach(_.shutdown())
    DriverSide.set(None)
  }
}

private final class TidelogExecutor extends ExecutorPlugin {
  private var side: Option[ExecutorSide] = None

  override def init(context: PluginContext, extra: JMap[String, String]): Unit = {
    val settings = Settings.of(context.conf)
    SegmentCache.resize(settings.cacheBytes)
    val author = Author(extra.get("run"), extra.get("startMs").toLong, context.executorID)
    val executor = new ExecutorSide(author, settings, context)
    executor.start()
    side = Some(executor)
    ExecutorSide.set(side)
  }

  override def onTaskStart(): Unit = side.foreach(_.taskStarted())

  override def shutdown(): Unit = {
    ExecutorSide.set(None)
    side.foreach(_.shutdown())
  }
}
