package tidelog.spark.driver

import java.io.ByteArrayOutputStream

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import tidelog.spark.index.CommitFile
import tidelog.spark.storage.AtomicFiles

/** The stream Spark writes `commits/N` to: the barrier of the batch. A query without state names
  * no ids and has no barrier; `withoutState` runs after its commit.
  *
  * Invariants: the file appears only after everything it names is durable, or with it; a
  * `close` that throws has published nothing, so the batch runs again.
  */
final class CommitStream(
    path: Path,
    overwrite: Boolean,
    files: AtomicFiles,
    barrier: => CommitBarrier,
    withoutState: () => Unit)
    extends CancellableFSDataOutputStream(new ByteArrayOutputStream)
    with Logging {
  private var ended = false

  override def close(): Unit = synchronized {
    if (!ended) {
      ended = true
      publish(underlyingStream.asInstanceOf[ByteArrayOutputStream].toByteArray)
    }
  }

  override def cancel(): Unit = synchronized {
    ended = true
  }

  private def publish(commit: Array[Byte]): Unit = {
    val ids = CommitFile.ids(commit, path.toString)
    if (ids.isEmpty) {
      files.write(path, commit, overwrite)
      withoutState()
    } else {
      val batch = barrier
      val gathered = batch.gather(ids)
      val indexed = CommitFile.withIndex(commit, gathered.index)
      val complete = gathered.inCommit.fold(indexed)(CommitFile.withSegment(indexed, _))
      files.write(path, complete, overwrite)
      batch.published(gathered, indexBytes = indexed.length.toLong - commit.length)
    }
  }
}

/** The barrier of one batch. */
trait CommitBarrier {
  def gather(ids: Vector[tidelog.spark.index.NamedId]): Gathered
  def published(gathered: Gathered, indexBytes: Long): Unit
}
