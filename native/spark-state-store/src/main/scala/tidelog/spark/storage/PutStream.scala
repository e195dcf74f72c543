package tidelog.spark.storage

import java.io.{ByteArrayOutputStream, OutputStream}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

import CheckpointFileManager.CancellableFSDataOutputStream

/** A file in memory until `close` gives all of its bytes to `put`, once.
  *
  * Invariant: after `cancel`, or a failed `close`, nothing written or closed has an effect (Spark
  * closes a compressing stream above this one after it has cancelled it).
  */
private[storage] final class PutStream(put: Array[Byte] => Unit)
    extends CancellableFSDataOutputStream(new PutBuffer(put)) {
  override def cancel(): Unit = underlyingStream.asInstanceOf[PutBuffer].cancel()
}

private final class PutBuffer(put: Array[Byte] => Unit) extends OutputStream {
  private var buffer = Option(new ByteArrayOutputStream(1024))

  override def write(byte: Int): Unit = synchronized(buffer.foreach(_.write(byte)))

  override def write(bytes: Array[Byte], offset: Int, length: Int): Unit =
    synchronized(buffer.foreach(_.write(bytes, offset, length)))

  override def close(): Unit = synchronized {
    val content = buffer
    buffer = None
    content.foreach(written => put(written.toByteArray))
  }

  def cancel(): Unit = synchronized { buffer = None }
}
