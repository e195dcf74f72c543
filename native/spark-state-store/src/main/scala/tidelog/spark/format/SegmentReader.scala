package tidelog.spark.format

import java.util.Arrays

/** One block in the footer of a segment; `pieces` is 0 unless it is the changelog's last piece. */
final case class FooterEntry(
    name: ChangelogName,
    offset: Long,
    length: Int,
    piece: Int,
    pieces: Int)

/** Reads what segments say of themselves.
  *
  * Errors: CorruptObjectException and FormatVersionException, both naming `where`.
  */
object SegmentReader {

  /** The footer of a whole segment, all of whose bytes are checked. */
  def footer(data: Array[Byte], where: String): Seq[FooterEntry] = {
    checkHeader(data, where)
    val read = (offset: Long, length: Int) =>
      Arrays.copyOfRange(data, offset.toInt, offset.toInt + length)
    val entries = footerAt(data.length.toLong, read, where)
    checkBlocks(data, entries, where)
    entries
  }

  /** The footer of a segment of `length` bytes; `read` gives so many bytes from an offset. It is
    * called once, or twice for a long footer, and may throw what it likes.
    */
  def footerAt(length: Long, read: (Long, Int) => Array[Byte], where: String): Seq[FooterEntry] = {
    if (length < Segment.HeaderBytes + Segment.TrailerBytes) {
      throw CorruptObjectException.at(where, "a segment trailer", s"$length bytes (truncated)")
    }
    val tailBytes = length.min(TailBytes.toLong).toInt
    val tail = read(length - tailBytes, tailBytes)
    val trailer = tail.takeRight(Segment.TrailerBytes)
    val (footerAt, footerBytes) = checkTrailer(trailer, length, where)
    val known = tailBytes - Segment.TrailerBytes
    val footer =
      if (footerBytes <= known) tail.slice(known - footerBytes, known)
      else read(footerAt, footerBytes)
    val crc = Crc32c.of(footer, Arrays.copyOf(trailer, Segment.TrailerCrcAt))
    FormatError.checkCrc(
      where, Block.littleEndian(trailer).getInt(Segment.TrailerCrcAt), crc)
    decode(footer, where)
  }

  private val TailBytes = 64 * 1024

  private def checkHeader(data: Array[Byte], where: String): Unit = {
    if (data.length < Segment.HeaderBytes) {
      throw CorruptObjectException.at(
        where, "a segment header", s"${data.length} bytes (truncated)")
    }
    val buffer = Block.littleEndian(data)
    FormatError.checkMagic(
      where, buffer.getInt(0), Segment.Magic, data(4) & 0xff, Segment.Version)
    FormatError.checkCrc(
      where,
      buffer.getInt(Segment.HeaderCrcAt),
      Crc32c.ofRanges(data, (0, Segment.HeaderCrcAt)))
  }

  /** Offset and length of the footer; its checksum is still to be checked. */
  private def checkTrailer(trailer: Array[Byte], length: Long, where: String): (Long, Int) = {
    val buffer = Block.littleEndian(trailer)
    val magic = buffer.getInt(Segment.TrailerBytes - 4)
    val version = trailer(Segment.TrailerCrcAt - 1) & 0xff
    FormatError.checkMagic(where, magic, Segment.TrailerMagic, version, Segment.Version)
    val (at, bytes) = (buffer.getLong(0), buffer.getInt(8))
    val fits = at >= Segment.HeaderBytes && bytes >= 0 &&
      at <= length && at + bytes == length - Segment.TrailerBytes
    if (!fits) {
      throw CorruptObjectException.at(
        where, "a footer that ends where the trailer starts", s"$bytes bytes from $at")
    }
    (at, bytes)
  }

  private def decode(footer: Array[Byte], where: String): Seq[FooterEntry] = {
    val in = new MsgPack.Reader(footer)
    try {
      val entries = Vector.fill(in.array())(entry(in))
      if (!in.atEnd) throw new MsgPack.Malformed("bytes after it")
      entries
    } catch {
      case error: MsgPack.Malformed =>
        throw CorruptObjectException.at(where, "a footer index", error.getMessage)
    }
  }

  private def entry(in: MsgPack.Reader): FooterEntry = {
    val fields = in.array()
    if (fields < Segment.EntryFields) throw new MsgPack.Malformed(s"an entry of $fields fields")
    val operator = in.string()
    val partition = in.unsigned()
    val kind = in.unsigned()
    if (kind != Block.SparkChangelog) throw new MsgPack.Malformed(s"a block of kind $kind")
    val (offset, length, version) = (in.unsigned(), in.unsigned(), in.unsigned())
    (0 until 3).foreach(_ => in.unsigned()) // count and key groups are always the same
    val (id, piece, pieces) = (in.string(), in.unsigned(), in.unsigned())
    (Segment.EntryFields until fields).foreach(_ => in.skip())
    if (Seq(length, piece, pieces).exists(!_.isValidInt)) {
      throw new MsgPack.Malformed(s"piece $piece of $pieces with $length bytes")
    }
    val name = changelog(operator, partition, version, id)
    FooterEntry(name, offset, length.toInt, piece.toInt, pieces.toInt)
  }

  private def changelog(operator: String, partition: Long, version: Long, id: String) = {
    val (number, store) = operator.span(_ != '/')
    ChangelogName
      .parse(s"$number/$partition$store", version, id)
      .getOrElse(throw new MsgPack.Malformed(s"changelog ${version}_$id of operator $operator"))
  }

  private def checkBlocks(data: Array[Byte], entries: Seq[FooterEntry], where: String): Unit = {
    val footerAt = Block.littleEndian(data).getLong(data.length - Segment.TrailerBytes).toInt
    val end = entries.foldLeft(Segment.HeaderBytes) { (at, entry) =>
      val place = s"$where at byte $at"
      val block = BlockReader.open(data, at, footerAt, place)
      BlockReader.check(block, entry.name, entry.piece, entry.pieces, place)
      if (entry.offset != at || entry.length != block.end - at) {
        throw CorruptObjectException.at(
          place,
          s"the block that the footer puts at ${entry.offset}, of ${entry.length} bytes",
          s"one of ${block.end - at}")
      }
      block.end
    }
    if (end != footerAt) {
      throw CorruptObjectException.at(
        s"$where at byte $end", "the footer index", "bytes it does not name")
    }
  }
}
