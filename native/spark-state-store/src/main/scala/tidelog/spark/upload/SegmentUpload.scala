package tidelog.spark.upload

import java.io.{FileNotFoundException, IOException}

import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import tidelog.spark.rpc.StoredSegment
import tidelog.spark.storage.AtomicFiles

/** Stores segments, retrying each until a deadline.
  *
  * @param deadlineMs how long one is retried before it has failed
  */
final class SegmentUpload(deadlineMs: Long, figures: UploadFigures) {

  /** Returns when the segment is durable; raises IOException or what a file system raises. */
  def store(files: AtomicFiles, path: Path, bytes: Array[Byte]): StoredSegment = {
    val start = System.nanoTime()
    def elapsedNs = System.nanoTime() - start
    try {
      val attempts = retrying(deadlineMs - elapsedNs / 1000000, worthRetrying(_, files, path)) {
        files.write(path, bytes, overwrite = true)
      }
      val stored = StoredSegment(path.getName, bytes.length.toLong, elapsedNs, attempts)
      figures.stored(stored)
      stored
    } catch {
      case error: Throwable =>
        figures.failures.inc()
        throw error
    }
  }

  /** How many attempts it took. */
  private def retrying(leftMs: => Long, worthIt: IOException => Boolean)(attempt: => Unit): Int = {
    var pauseMs = SegmentUpload.FirstPauseMs
    var stored = false
    var attempts = 0
    while (!stored) {
      attempts += 1
      figures.attempts.inc()
      try {
        attempt
        stored = true
      } catch {
        case error: IOException if leftMs > pauseMs && worthIt(error) =>
          figures.retries.inc()
          Thread.sleep(pauseMs)
          pauseMs = (pauseMs * 2).min(SegmentUpload.LongestPauseMs)
      }
    }
    attempts
  }

  private def worthRetrying(error: IOException, files: AtomicFiles, path: Path): Boolean =
    error match {
      case _: FileAlreadyExistsException => false
      // Somebody has removed the checkpoint of a query that was stopped.
      case _: FileNotFoundException =>
        try files.exists(path.getParent)
        catch { case _: IOException => true }
      case _ => true
    }
}

private object SegmentUpload {
  private val FirstPauseMs = 100L
  private val LongestPauseMs = 5000L
}
