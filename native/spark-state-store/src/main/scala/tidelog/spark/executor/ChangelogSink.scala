package tidelog.spark.executor

import java.io.IOException
import java.util.concurrent.{ExecutionException, Future, Semaphore}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

import tidelog.spark.format.{ChangelogName, FormatError, IndexEntry, Piece}
import tidelog.spark.index.IndexReaders
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Part, Stored, StoredSegment}
import tidelog.spark.snapshot.SnapshotStatus
import tidelog.spark.storage.AtomicFiles

/** One changelog on its way out of its executor.
  *
  * A small one goes to the driver, which packs those of all executors. One that is large, or that
  * the driver has no room for, is stored by the executor: a segment for each piece, the earlier
  * ones while the task still writes.
  *
  * Invariant: when the last `handOver` has returned, the driver has the changelog's bytes or knows
  * that they are durable, so the loss of the executor loses nothing of a task that has ended.
  *
  * Errors: IOException, of which Spark runs the task again.
  */
private[executor] final class ChangelogSink(
    root: CheckpointRoot,
    run: String,
    name: ChangelogName,
    snapshots: SnapshotStatus,
    files: AtomicFiles,
    side: ExecutorSide)
    extends PieceSink
    with Logging {
  private val room = new Semaphore(side.settings.uploadThreads)
  private var pieces = Vector.empty[Piece]
  private var uploads = Vector.empty[Future[StoredSegment]]
  private var bytes = 0L

  override def pieceBytes: Int = side.settings.segmentBytes.min(Int.MaxValue / 2).toInt

  override def handOver(content: Array[Byte], last: Boolean): Unit = {
    bytes += content.length
    val small = last && pieces.isEmpty && content.length <= side.settings.partBytes
    if (!small || side.ask(Part(root.uri, run, name, content, snapshots)) != Answer.Received) {
      upload(content, last)
      if (last) stored(uploads.map(ended))
    }
    if (last) side.metrics.completed(bytes, snapshots.turn)
  }

  override def end(completed: Boolean): Unit = if (!completed) uploads.foreach(remove)

  private def upload(content: Array[Byte], last: Boolean): Unit = {
    if (pieces.isEmpty) files.prepare(root.segments)
    val (segment, builder) = side.names.next(run)
    val count = if (last) pieces.length + 1 else 0
    pieces :+= builder.add(name, pieces.length, count, content)
    // The task waits where the store is slower than it writes.
    room.acquire()
    uploads :+= side.pool.submit { () =>
      try side.uploads.store(files, root.segment(segment), builder.result())
      finally room.release()
    }
  }

  private def stored(segments: Vector[StoredSegment]): Unit = {
    val message = Stored(root.uri, run, IndexEntry(name, bytes, pieces), snapshots, segments)
    IndexReaders.learn(root, message.entry, segments)
    side.ask(message)
  }

  private def ended(upload: Future[StoredSegment]): StoredSegment =
    try upload.get()
    catch {
      case error: ExecutionException =>
        throw new IOException(
          s"changelog ${name.path} of $root could not be stored: " +
            FormatError.withoutStop(error.getCause.toString) +
            ". Next: nothing, Spark runs the task again (a retry is safe).",
          error.getCause)
    }

  /** The attempt has failed: nobody will need what it has stored. */
  private def remove(upload: Future[StoredSegment]): Unit = side.pool.execute { () =>
    try files.manager.delete(root.segment(upload.get().name))
    catch { case NonFatal(error) => logInfo(s"tidelog: a piece of ${name.path} stays", error) }
  }
}
