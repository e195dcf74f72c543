package tidelog.spark.core

import java.io.FileNotFoundException
import java.nio.file.Files
import java.util.concurrent.{CompletableFuture, TimeUnit}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.executor.{ExecutorMetrics, Stored, Uploads}
import tidelog.spark.storage.AtomicFiles

/** Uploads of segments to a local directory. */
final class UploadChecks(checks: Checks) {
  def run(): Unit =
    checks.check("an upload into a directory that was removed is given up, not tried again") {
      val removed = Files.createTempDirectory("tidelog-uploads")
      val path = new Path(removed.toUri)
      val files = AtomicFiles.open(path, new Configuration)
      Files.delete(removed)
      val metrics = new ExecutorMetrics(new MetricRegistry)
      val uploads = new Uploads(threads = 1, deadlineMs = TimeUnit.DAYS.toMillis(1), metrics)
      val result = new CompletableFuture[Either[Throwable, Stored]]
      uploads.submit(files, new Path(path, "a.seg"), () => Array[Byte](1))(result.complete(_))
      equal(result.get().left.map(_.isInstanceOf[FileNotFoundException]), Left(true))
      equal((metrics.attempts.getCount, metrics.retries.getCount), (1L, 0L))
      equal(metrics.failures.getCount, 1L)
      equal(Files.exists(removed), false)
      uploads.shutdown()
    }
}
