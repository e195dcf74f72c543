package tidelog.benchmark

import java.io.ByteArrayOutputStream

/** Bytes that become a file, in one request, when the stream is closed. */
private final class PutOnClose(put: Array[Byte] => Unit) extends ByteArrayOutputStream(1024) {
  private var closed = false

  override def close(): Unit = if (!closed) {
    closed = true
    put(toByteArray)
  }
}
