package tidelog.spark.executor

import java.io.{FileNotFoundException, IOException}
import java.util.concurrent.Executors

import scala.util.control.NonFatal

import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import tidelog.spark.DaemonThreads
import tidelog.spark.storage.AtomicFiles

/** An object that was stored.
  *
  * @param elapsedNs from the first attempt to the end of the last, pauses between them included
  */
final case class Stored(bytes: Long, elapsedNs: Long, attempts: Int)

/** The threads of an executor that store segments, retrying each until a deadline.
  *
  * Invariant: `done` is called exactly once per upload.
  */
final class Uploads(threads: Int, deadlineMs: Long, metrics: ExecutorMetrics) {
  private val pool = Executors.newFixedThreadPool(threads, DaemonThreads("tidelog-upload"))

  def submit(files: AtomicFiles, path: Path, bytes: () => Array[Byte])(
      done: Either[Throwable, Stored] => Unit): Unit =
    pool.execute(() => done(store(files, path, bytes)))

  def shutdown(): Unit = pool.shutdownNow()

  /** Whether the executor shuts down, which gives up what is under way. */
  def ended: Boolean = pool.isShutdown

  private def store(
      files: AtomicFiles,
      path: Path,
      bytes: () => Array[Byte]): Either[Throwable, Stored] = {
    val start = System.nanoTime()
    try {
      val data = bytes()
      def worthIt(error: IOException) = worthRetrying(error, files, path)
      val attempts = retrying(start, worthIt)(files.write(path, data, overwrite = true))
      Right(Stored(data.length.toLong, System.nanoTime() - start, attempts))
    } catch {
      case error if NonFatal(error) || error.isInstanceOf[InterruptedException] =>
        metrics.failures.inc()
        Left(error)
    }
  }

  /** How many attempts it took. */
  private def retrying(startNs: Long, worthIt: IOException => Boolean)(attempt: => Unit): Int = {
    var pauseMs = Uploads.FirstPauseMs
    var stored = false
    var attempts = 0
    while (!stored) {
      attempts += 1
      metrics.attempts.inc()
      try {
        attempt
        stored = true
      } catch {
        case error: IOException if leftMs(startNs) > pauseMs && worthIt(error) =>
          metrics.retries.inc()
          Thread.sleep(pauseMs)
          pauseMs = (pauseMs * 2).min(Uploads.LongestPauseMs)
      }
    }
    attempts
  }

  private def worthRetrying(error: IOException, files: AtomicFiles, path: Path): Boolean =
    error match {
      case _: FileAlreadyExistsException => false
      // Somebody has removed the checkpoint of a query that was stopped: the upload would keep a
      // thread from other queries until its deadline.
      case _: FileNotFoundException =>
        try files.exists(path.getParent)
        catch { case _: IOException => true }
      case _ => true
    }

  private def leftMs(startNs: Long): Long = deadlineMs - (System.nanoTime() - startNs) / 1000000
}

private object Uploads {
  private val FirstPauseMs = 100L
  private val LongestPauseMs = 5000L
}
