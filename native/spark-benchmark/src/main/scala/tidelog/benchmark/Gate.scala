package tidelog.benchmark

import java.io.InterruptedIOException

import org.apache.hadoop.fs.Path

/** Holds queries before the batch after a last one, so that they can be stopped between two.
  *
  * Invariant: a query that waits here has committed the last batch, and nothing of the next exists.
  */
object Gate {
  private var last = Long.MaxValue

  /** The last batch that may pass; those that wait do when it is set higher. */
  def endAfter(batch: Long): Unit = synchronized {
    last = batch
    notifyAll()
  }

  /** Called for every file that is to be written; the query's own thread waits here. */
  def pass(path: Path): Unit =
    if (path.getParent.getName == "offsets") path.getName.toLongOption.foreach(await(_, path))

  private def await(batch: Long, path: Path): Unit = synchronized {
    try while (batch > last) wait()
    catch {
      case e: InterruptedException =>
        Thread.currentThread().interrupt()
        throw new InterruptedIOException(s"put $path").initCause(e)
    }
  }
}
