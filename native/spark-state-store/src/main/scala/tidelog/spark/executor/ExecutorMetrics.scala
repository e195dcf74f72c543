package tidelog.spark.executor

import com.codahale.metrics.{Counter, Gauge, MetricRegistry}

import tidelog.spark.index.SegmentCache
import tidelog.spark.snapshot.{OpenStores, SnapshotTurn}
import tidelog.spark.upload.UploadFigures

/** An executor's figures in Spark's metrics system, under the plug-in's name; the table in
  * docs/reference/spark-plugin.md has all names.
  *
  * Sizes in bytes, times in milliseconds unless the name says otherwise.
  */
final class ExecutorMetrics(registry: MetricRegistry) {
  private var read = Map.empty[String, () => Long]

  /** The segments of changelogs that are too large for the driver. */
  val uploads = new UploadFigures(registry, counter, identity)
  private val changelogs = counter("changelogs")
  private val changelogBytes = counter("changelog.bytes")
  private val snapshots = counter("snapshots")
  private val putOff = counter("snapshots.putOff")

  gauge("cache.hits")(SegmentCache.shared.hits)
  gauge("cache.misses")(SegmentCache.shared.misses)
  gauge("cache.bytes")(SegmentCache.shared.bytes)
  gauge("snapshots.late")(OpenStores.late)
  gauge("snapshots.lag")(OpenStores.lag)

  /** A changelog was handed over to its end. */
  def completed(bytes: Long, turn: SnapshotTurn): Unit = {
    changelogs.inc()
    changelogBytes.inc(bytes)
    turn match {
      case SnapshotTurn.Taken => snapshots.inc()
      case SnapshotTurn.PutOff => putOff.inc()
      case SnapshotTurn.NotYet => ()
    }
  }

  /** What the driver adds up over its executors: the values of `ExecutorMetrics.Names`. */
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
    "changelogs", "changelog.bytes", "segments", "upload.bytes", "upload.attempts",
    "upload.retries", "upload.failures", "cache.hits", "cache.misses", "snapshots",
    "snapshots.putOff")

  /** What an executor holds now. */
  val Levels: Vector[String] = Vector("cache.bytes", "snapshots.late")

  /** What is no sum: of these the largest counts. */
  val Largest: Vector[String] = Vector("snapshots.lag")

  val Names: Vector[String] = Totals ++ Levels ++ Largest
}
