package tidelog.spark.executor

import java.io.{ByteArrayOutputStream, OutputStream}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** The stream Spark writes a changelog to.
  *
  * Invariants: `close` hands the last bytes over and returns without waiting for the store, or
  * throws and nothing is complete; after `cancel` nothing becomes visible, whatever is still
  * written or closed (Spark closes a compressing stream above this one after it has cancelled it).
  */
final class ChangelogStream(sink: PieceSink)
    extends CancellableFSDataOutputStream(new PieceBuffer(sink)) {
  override def cancel(): Unit = underlyingStream.asInstanceOf[PieceBuffer].cancel()
}

/** Where the pieces of one changelog go. */
trait PieceSink {
  def pieceBytes: Int

  /** Takes a piece; waits while too many bytes are in flight. */
  def handOver(bytes: Array[Byte], last: Boolean): Unit

  /** Called once, when no piece will follow: after the last one, or on `cancel`. */
  def end(completed: Boolean): Unit
}

private final class PieceBuffer(sink: PieceSink) extends OutputStream {
  private val buffer = new ByteArrayOutputStream(1024)
  private var ended = false

  override def write(byte: Int): Unit = synchronized {
    if (!ended) {
      buffer.write(byte)
      handOverFull()
    }
  }

  override def write(bytes: Array[Byte], offset: Int, length: Int): Unit = synchronized {
    if (!ended) {
      buffer.write(bytes, offset, length)
      handOverFull()
    }
  }

  override def close(): Unit = synchronized {
    if (!ended) {
      ended = true
      var completed = false
      try {
        sink.handOver(buffer.toByteArray, last = true)
        completed = true
      } finally sink.end(completed)
    }
  }

  def cancel(): Unit = synchronized {
    if (!ended) {
      ended = true
      buffer.reset()
      sink.end(completed = false)
    }
  }

  private def handOverFull(): Unit =
    if (buffer.size >= sink.pieceBytes) {
      val piece = buffer.toByteArray
      buffer.reset()
      sink.handOver(piece, last = false)
    }
}
