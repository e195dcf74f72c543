package tidelog.spark.core

import java.io.FileNotFoundException
import java.nio.file.Files
import java.util.concurrent.TimeUnit

import scala.util.{Success, Try}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.executor.ExecutorMetrics
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.SegmentUpload

/** Uploads of segments to a local directory. */
final class UploadChecks(checks: Checks) {
  def run(): Unit =
    checks.check("an upload into a directory that was removed is given up, not tried again") {
      val removed = Files.createTempDirectory("tidelog-uploads")
      val path = new Path(removed.toUri)
      val files = AtomicFiles.open(path, new Configuration)
      Files.delete(removed)
      val metrics = new ExecutorMetrics(new MetricRegistry)
      val upload = new SegmentUpload(deadlineMs = TimeUnit.DAYS.toMillis(1), metrics.uploads)
      val stored = Try(upload.store(files, new Path(path, "a.seg"), Array[Byte](1)))
      equal(stored.failed.map(_.isInstanceOf[FileNotFoundException]), Success(true))
      equal((metrics.uploads.attempts.getCount, metrics.uploads.retries.getCount), (1L, 0L))
      equal(metrics.uploads.failures.getCount, 1L)
      equal(Files.exists(removed), false)
    }
}
