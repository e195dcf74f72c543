package tidelog.spark.format

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays

/** What a block says of itself; its content is [contentAt, end) of the array it was found in. */
private[format] final case class OpenedBlock(
    version: Long,
    path: String,
    piece: Int,
    pieces: Int,
    contentAt: Int,
    end: Int)

/** Reads blocks of kind 3.
  *
  * Invariant: no field but magic, version and length is used before the checksum has passed.
  */
object BlockReader {

  /** The bytes of one piece of a changelog, from exactly its block.
    *
    * Raises CorruptObjectException (damaged, truncated, or another changelog's or piece's block)
    * and FormatVersionException; `where` names object and place.
    */
  def content(
      block: Array[Byte],
      name: ChangelogName,
      piece: Int,
      pieces: Int,
      where: String): Array[Byte] = {
    val opened = open(block, 0, block.length, where)
    if (opened.end != block.length) {
      throw CorruptObjectException.at(
        where, s"a block of ${block.length} bytes", s"one of ${opened.end}")
    }
    check(opened, name, piece, pieces, where)
    Arrays.copyOfRange(block, opened.contentAt, opened.end)
  }

  /** Raises unless the block holds this piece. */
  private[format] def check(
      block: OpenedBlock,
      name: ChangelogName,
      piece: Int,
      pieces: Int,
      where: String): Unit = {
    val expected = (name.version, name.path, piece, pieces)
    if ((block.version, block.path, block.piece, block.pieces) != expected) {
      throw CorruptObjectException.at(
        where,
        s"piece $piece of ${name.path}, ${countText(pieces)}",
        s"piece ${block.piece} of ${block.path}, ${countText(block.pieces)}")
    }
  }

  /** The block at byte `at`, which must end at `limit` or before. */
  private[format] def open(data: Array[Byte], at: Int, limit: Int, where: String): OpenedBlock = {
    val start = at + Block.HeaderBytes
    if (limit < start) {
      throw CorruptObjectException.at(where, "a block header", s"${limit - at} bytes (truncated)")
    }
    val buffer = Block.littleEndian(data)
    FormatError.checkMagic(where, buffer.getInt(at), Block.Magic, data(at + 4) & 0xff, 1)
    val stored = buffer.getInt(at + 24)
    if (stored < 0 || stored > limit - start) {
      throw CorruptObjectException.at(
        where,
        s"${Integer.toUnsignedString(stored)} bytes of payload",
        s"${limit - start} bytes (truncated)")
    }
    val crcAt = at + Block.CrcAt
    val found = Crc32c.ofRanges(data, (at, crcAt), (start, start + stored))
    FormatError.checkCrc(where, buffer.getInt(crcAt), found)
    checkKind(data(at + 5), data(at + 6), data(at + 7), where)
    payload(data, at, start + stored, where)
  }

  private def checkKind(kind: Byte, codec: Byte, flags: Byte, where: String): Unit =
    if (kind != Block.SparkChangelog || codec != 0 || flags != 0) {
      throw new FormatVersionException(
        where,
        s"a block of kind ${Block.SparkChangelog}, codec 0, no flags",
        s"kind $kind, codec $codec, flags $flags")
    }

  private def payload(data: Array[Byte], at: Int, end: Int, where: String): OpenedBlock = {
    val buffer = Block.littleEndian(data)
    val start = at + Block.HeaderBytes
    val nameLength = if (end - start >= 2) buffer.getShort(start) & 0xffff else 0
    val numbers = start + 2 + nameLength
    if (numbers + 8 > end) {
      throw CorruptObjectException.at(
        where, "a name and two numbers", s"${end - start} bytes of payload")
    }
    OpenedBlock(
      version = buffer.getLong(at + 8),
      path = new String(data, start + 2, nameLength, UTF_8),
      piece = buffer.getInt(numbers),
      pieces = buffer.getInt(numbers + 4),
      contentAt = numbers + 8,
      end = end)
  }

  private def countText(pieces: Int): String =
    if (pieces == 0) "more to follow" else s"the last of $pieces"
}
