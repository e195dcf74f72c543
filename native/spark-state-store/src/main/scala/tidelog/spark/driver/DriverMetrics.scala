package tidelog.spark.driver

import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import com.codahale.metrics.{Gauge, MetricRegistry}

import tidelog.spark.executor.ExecutorMetrics
import tidelog.spark.upload.UploadFigures

/** The driver's figures in Spark's metrics system, under the plug-in's name; the table in
  * docs/reference/spark-plugin.md has all names.
  *
  * Invariant: no name is also one of `ExecutorMetrics`, because in local mode both are registered
  * under one name.
  *
  * @param executors sums of the executors' own figures, for sinks that only the driver has
  */
final class DriverMetrics(
    registry: MetricRegistry,
    executors: ExecutorSums = new ExecutorSums,
    heldBytes: () => Long = () => 0) {

  /** The segments that the driver makes of parts. */
  val uploads = new UploadFigures(registry, name => registry.counter(s"parts.$name"), name => s"parts.$name")
  val parts = registry.counter("parts")
  val partsRefused = registry.counter("parts.refused")
  val barrierFailures = registry.counter("barrier.failures")
  val rollUps = registry.counter("rollUps")
  val rollUpSegments = registry.counter("rollUps.segments")
  val rollUpBytes = registry.counter("rollUps.upload.bytes")
  val segmentsDeleted = registry.counter("segments.deleted")
  val houseKeepingFailures = registry.counter("houseKeeping.failures")
  val swept = registry.counter("segments.swept")
  private val batches = registry.counter("batches")
  private val committedChangelogs = registry.counter("committed.changelogs")
  private val committedBytes = registry.counter("committed.bytes")
  private val committedSegments = registry.counter("committed.segments")
  private val indexBytes = registry.counter("index.bytes")
  private val barrierTime = registry.timer("barrier.time")
  private val liveSegments = new AtomicLong
  private val liveBytes = new AtomicLong

  gauge("segments.live")(liveSegments.get)
  gauge("segments.bytes")(liveBytes.get)
  gauge("parts.bytes")(heldBytes())
  gauge("executors.alive")(executors.alive.toLong)
  ExecutorMetrics.Names.foreach(name => gauge(s"executors.$name")(executors.sum(name)))

  def committed(gathered: Gathered, indexLine: Long): Unit = {
    batches.inc()
    committedChangelogs.inc(gathered.index.entries.length.toLong)
    committedBytes.inc(gathered.index.entries.map(_.bytes).sum)
    committedSegments.inc(gathered.index.apart.size.toLong)
    indexBytes.inc(indexLine)
    barrierTime.update(gathered.waitedMs, TimeUnit.MILLISECONDS)
  }

  /** The checkpoint that committed last. */
  def live(segments: Long, bytes: Long): Unit = {
    liveSegments.set(segments)
    liveBytes.set(bytes)
  }

  private def gauge(name: String)(value: => Long): Unit = {
    val measure: Gauge[Long] = () => value
    registry.gauge[Gauge[Long]](name, () => measure)
  }
}
