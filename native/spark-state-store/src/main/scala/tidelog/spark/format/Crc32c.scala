package tidelog.spark.format

import java.util.Locale
import java.util.zip.CRC32C

/** CRC32C (Castagnoli) as docs/internals/format.md defines it. */
object Crc32c {

  /** The checksum of several arrays, one after the other. */
  def of(parts: Array[Byte]*): Int = {
    val crc = new CRC32C
    parts.foreach(part => crc.update(part, 0, part.length))
    crc.getValue.toInt
  }

  /** The checksum of parts of one array, each given as [from, until). */
  def ofRanges(bytes: Array[Byte], ranges: (Int, Int)*): Int = {
    val crc = new CRC32C
    ranges.foreach { case (from, until) => crc.update(bytes, from, until - from) }
    crc.getValue.toInt
  }

  /** Eight lower-case hexadecimal digits. */
  def hex(checksum: Int): String = "%08x".formatLocal(Locale.ROOT, checksum)
}
