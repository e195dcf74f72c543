package tidelog.benchmark

import java.io.{ByteArrayInputStream, EOFException}

import org.apache.hadoop.fs.{PositionedReadable, Seekable}

/** A file that has been read whole, as Hadoop's input streams want it. */
private final class BytesInput(bytes: Array[Byte])
    extends ByteArrayInputStream(bytes)
    with Seekable
    with PositionedReadable {

  override def seek(position: Long): Unit = {
    if (position < 0 || position > count) throw new EOFException(s"seek to $position of $count")
    pos = position.toInt
  }

  override def getPos: Long = pos.toLong

  override def seekToNewSource(target: Long): Boolean = false

  override def read(position: Long, into: Array[Byte], offset: Int, length: Int): Int = {
    val left = count - position
    val read = left.min(length.toLong).toInt
    if (read > 0) System.arraycopy(bytes, position.toInt, into, offset, read)
    if (read > 0 || length == 0) read.max(0) else -1
  }

  override def readFully(position: Long, into: Array[Byte], offset: Int, length: Int): Unit =
    if (read(position, into, offset, length) < length) {
      throw new EOFException(s"$length bytes from $position of $count")
    }

  override def readFully(position: Long, into: Array[Byte]): Unit =
    readFully(position, into, 0, into.length)
}
