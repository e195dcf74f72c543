package tidelog.spark.format

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays

/** Blocks of kind 3, spark-changelog: docs/internals/format.md, "Blocks" and "Payload of kind 3".
  *
  * Invariant: a block says itself whose bytes it holds, under its own checksum.
  */
object Block {
  val HeaderBytes = 40
  private[format] val CrcAt = HeaderBytes - 4
  private[format] val Magic = 0x4b424c54 // "TLBK", little-endian
  private[format] val Version = 1
  private[format] val SparkChangelog = 3
  private[format] val LastKeyGroup = 0xffff
  private val NumberBytes = 2 + 4 + 4

  /** Bytes of a block that are not content: its header, and what its payload says of itself. */
  def framingBytes(name: ChangelogName): Int =
    HeaderBytes + NumberBytes + name.path.getBytes(UTF_8).length

  /** What precedes the content of a piece in its block; `pieces` is 0 unless it is the last. */
  private[format] def framing(
      name: ChangelogName,
      piece: Int,
      pieces: Int,
      content: Array[Byte]): Array[Byte] = {
    val path = name.path.getBytes(UTF_8)
    require(path.length <= 0xffff, s"${name.path} is longer than 65535 bytes")
    require(piece >= 0 && (pieces == 0 || pieces == piece + 1), s"piece $piece of $pieces")
    val payload = Math.addExact(NumberBytes + path.length, content.length)
    val frame = littleEndian(HeaderBytes + NumberBytes + path.length)
    frame.putInt(Magic).put(Version.toByte).put(SparkChangelog.toByte).putShort(0)
    frame.putLong(name.version).putInt(1).putInt(payload).putInt(payload).putInt(0)
    frame.putShort(0).putShort(LastKeyGroup.toShort).putInt(0)
    frame.putShort(path.length.toShort).put(path).putInt(piece).putInt(pieces)
    val bytes = frame.array
    val header = Arrays.copyOf(bytes, CrcAt)
    val start = Arrays.copyOfRange(bytes, HeaderBytes, bytes.length)
    frame.putInt(CrcAt, Crc32c.of(header, start, content))
    bytes
  }

  private[format] def littleEndian(size: Int): ByteBuffer =
    ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN)

  private[format] def littleEndian(bytes: Array[Byte]): ByteBuffer =
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
}
