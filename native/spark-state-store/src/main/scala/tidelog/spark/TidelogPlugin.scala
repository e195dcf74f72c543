package tidelog.spark

import java.util.{UUID, Map => JMap}

import scala.util.Try

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent, SparkListenerExecutorRemoved}
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent

import tidelog.spark.driver.{DriverSide, QueryRun}
import tidelog.spark.executor.ExecutorSide
import tidelog.spark.index.SegmentCache
import tidelog.spark.rpc.Message
import tidelog.spark.snapshot.SparkStores
import tidelog.spark.upload.SegmentNames

/** The plug-in's two sides; set it in `spark.plugins`. */
class TidelogPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new TidelogDriver
  override def executorPlugin(): ExecutorPlugin = new TidelogExecutor
}

private final class TidelogDriver extends DriverPlugin {
  private var side: Option[DriverSide] = None

  override def init(spark: SparkContext, context: PluginContext): JMap[String, String] = {
    // Properties that Spark sets in the thread of a streaming query; a user may have set the group.
    def property(name: String) = Option(spark.getLocalProperty(name))
    def calling = QueryRun(
      property("sql.streaming.queryId"),
      property("spark.jobGroup.id").filter(group => Try(UUID.fromString(group)).isSuccess))
    val startMs = System.currentTimeMillis()
    val driver =
      new DriverSide(startMs, Settings.of(context.conf), context.metricRegistry, () => calling)
    side = Some(driver)
    DriverSide.set(side)
    spark.addSparkListener(new SparkListener {
      override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit =
        driver.executorRemoved(event.executorId)

      override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
        case ended: QueryTerminatedEvent => driver.runEnded(ended.runId.toString)
        case _ => ()
      }
    })
    JMap.of("startMs", startMs.toString)
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
    if (settings.stagger) SparkStores.probe()
    val names = SegmentNames(context.executorID, extra.get("startMs").toLong)
    val executor = new ExecutorSide(names, settings, context)
    executor.start()
    side = Some(executor)
    ExecutorSide.set(side)
  }

  override def shutdown(): Unit = {
    ExecutorSide.set(None)
    side.foreach(_.shutdown())
  }
}
