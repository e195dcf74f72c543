package tidelog.spark.driver

import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import com.codahale.metrics.{Gauge, MetricRegistry}

/** The driver's figures in Spark's metrics system, under the plug-in's name. */
final class DriverMetrics(registry: MetricRegistry) {
  val batches = registry.counter("batches")
  val barrierFailures = registry.counter("barrier.failures")
  val rollUps = registry.counter("rollUps")
  val segmentsDeleted = registry.counter("segments.deleted")
  val swept = registry.counter("segments.swept")
  private val barrierTime = registry.timer("barrier.time")
  private val liveSegments = gauge("segments.live")
  private val liveBytes = gauge("segments.bytes")

  def waited(elapsedNs: Long): Unit = {
    batches.inc()
    barrierTime.update(elapsedNs, TimeUnit.NANOSECONDS)
  }

  /** The checkpoint that committed last. */
  def live(segments: Long, bytes: Long): Unit = {
    liveSegments.set(segments)
    liveBytes.set(bytes)
  }

  private def gauge(name: String): AtomicLong = {
    val value = new AtomicLong
    val measure: Gauge[Long] = () => value.get
    registry.gauge[Gauge[Long]](name, () => measure)
    value
  }
}
