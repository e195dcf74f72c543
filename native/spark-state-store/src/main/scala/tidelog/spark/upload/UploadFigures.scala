package tidelog.spark.upload

import java.util.concurrent.TimeUnit

import com.codahale.metrics.{Counter, MetricRegistry}

import tidelog.spark.rpc.StoredSegment

/** Counts the uploads of one side of the plug-in in Spark's metrics system; sizes in bytes.
  *
  * @param counter makes the counter of a name
  * @param name the full name of a histogram or timer
  */
final class UploadFigures(
    registry: MetricRegistry,
    counter: String => Counter,
    name: String => String) {
  val attempts = counter("upload.attempts")
  val retries = counter("upload.retries")
  val failures = counter("upload.failures")
  private val segments = counter("segments")
  private val bytes = counter("upload.bytes")
  private val sizes = registry.histogram(name("segment.bytes"))
  private val time = registry.timer(name("upload.time"))

  def stored(segment: StoredSegment): Unit = {
    segments.inc()
    bytes.inc(segment.bytes)
    sizes.update(segment.bytes)
    time.update(segment.elapsedNs, TimeUnit.NANOSECONDS)
  }
}
