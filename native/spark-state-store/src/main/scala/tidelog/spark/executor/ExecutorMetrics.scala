package tidelog.spark.executor

import java.util.concurrent.TimeUnit

import com.codahale.metrics.{Counter, Gauge, MetricRegistry}

import tidelog.spark.index.SegmentCache
import tidelog.spark.snapshot.SnapshotTurn

/** An executor's figures in Spark's metrics system, under the plug-in's name; the table in
  * docs/reference/spark-plugin.md has all names.
  *
  * Sizes in bytes, times in milliseconds unless the name says otherwise.
  */
final class ExecutorMetrics(registry: MetricRegistry) {
  private var read = Map.empty[String, () => Long]

  val attempts = counter("upload.attempts")
  val retries = counter("upload.retries")
  val failures = counter("upload.failures")
  val changelogBytes = counter("changelog.bytes")
  private val changelogs = counter("changelogs")
  private val segments = counter("segments")
  private val blocks = counter("blocks")
  private val uploadBytes = counter("upload.bytes")
  private val snapshots = counter("snapshots")
  private val putOff = counter("snapshots.putOff")
  private val segmentBytes = registry.histogram("segment.bytes")
  private val uploadTime = registry.timer("upload.time")

  gauge("cache.hits")(SegmentCache.shared.hits)
  gauge("cache.misses")(SegmentCache.shared.misses)
  gauge("cache.bytes")(SegmentCache.shared.bytes)

  /** A changelog was handed over to its end. */
  def completed(turn: SnapshotTurn): Unit = {
    changelogs.inc()
    turn match {
      case SnapshotTurn.Taken => snapshots.inc()
      case SnapshotTurn.PutOff => putOff.inc()
      case SnapshotTurn.NotYet => ()
    }
  }

  def uploaded(blocksStored: Int, stored: Stored): Unit = {
    segments.inc()
    blocks.inc(blocksStored.toLong)
    uploadBytes.inc(stored.bytes)
    segmentBytes.update(stored.bytes)
    uploadTime.update(stored.elapsedNs, TimeUnit.NANOSECONDS)
  }

  def watch(inFlight: InFlightBytes): Unit = {
    gauge("inFlight.bytes")(inFlight.bytes)
    gauge("inFlight.waited")(inFlight.waitedMs)
  }

  /** What the driver sums up over its executors: the values of `ExecutorMetrics.Names`. */
  def figures: Map[String, Long] = read.map { case (name, value) => name -> value() }

  private def counter(name: String): Counter = {
    val counted = registry.counter(name)
    read += name -> (() => counted.getCount)
    counted
  }

  private def gauge(name: String)(value: => Long): Unit = {
    val measure: Gauge[Long] = () => value
    registry.gauge[Gauge[Long]](name, () => measure)
    read += name -> (() => value)
  }
}

object ExecutorMetrics {

  /** Figures that only grow while an executor lives. */
  val Totals: Vector[String] = Vector(
    "changelogs", "changelog.bytes", "segments", "blocks", "upload.bytes", "upload.attempts",
    "upload.retries", "upload.failures", "inFlight.waited", "cache.hits", "cache.misses",
    "snapshots", "snapshots.putOff")

  /** What an executor holds now. */
  val Levels: Vector[String] = Vector("inFlight.bytes", "cache.bytes")

  val Names: Vector[String] = Totals ++ Levels
}
