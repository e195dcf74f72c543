package tidelog.spark.executor

import java.util.concurrent.TimeUnit

import com.codahale.metrics.{Gauge, MetricRegistry}

/** An executor's figures in Spark's metrics system, under the plug-in's name.
  *
  * Sizes in bytes, times in milliseconds unless the name says otherwise.
  */
final class ExecutorMetrics(registry: MetricRegistry) {
  val retries = registry.counter("upload.retries")
  val failures = registry.counter("upload.failures")
  val changelogs = registry.counter("changelogs")
  val changelogBytes = registry.counter("changelog.bytes")
  private val segments = registry.counter("segments")
  private val segmentBytes = registry.histogram("segment.bytes")
  private val uploadTime = registry.timer("upload.time")

  def uploaded(bytes: Long, elapsedNs: Long): Unit = {
    segments.inc()
    segmentBytes.update(bytes)
    uploadTime.update(elapsedNs, TimeUnit.NANOSECONDS)
  }

  def watch(inFlight: InFlightBytes): Unit = {
    gauge("inFlight.bytes")(inFlight.bytes)
    gauge("inFlight.waited")(inFlight.waitedMs)
  }

  private def gauge(name: String)(value: => Long): Unit = {
    val measure: Gauge[Long] = () => value
    registry.gauge[Gauge[Long]](name, () => measure)
  }
}
