package tidelog.spark.index

import java.io.InputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32C

import org.apache.hadoop.fs.{FSDataInputStream, FSInputStream}

/** The checksum file that Spark expects with a changelog, made from the changelog.
  *
  * A changelog in the log has none, because every block is checked when it is read. Spark would log
  * a warning for each changelog without one.
  */
object MadeChecksum {

  /** The file for this content; reads it to its end and closes it. */
  def of(content: InputStream): FSDataInputStream = {
    val sum = new CRC32C
    val bytes =
      try content.readAllBytes()
      finally content.close()
    sum.update(bytes)
    val json = s"""{"algorithm":"CRC32C","value":${sum.getValue.toInt},""" +
      s""""mainFileSize":${bytes.length},"timestampMs":0,""" +
      """"creator":{"executorId":"","taskInfo":""}}"""
    new FSDataInputStream(new BytesInput(json.getBytes(UTF_8)))
  }
}

private final class BytesInput(bytes: Array[Byte]) extends FSInputStream {
  private var position = 0

  override def read(): Int =
    if (position == bytes.length) -1
    else {
      position += 1
      bytes(position - 1) & 0xff
    }

  override def seek(to: Long): Unit = position = to.toInt.max(0).min(bytes.length)
  override def getPos: Long = position.toLong
  override def seekToNewSource(to: Long): Boolean = false
}
