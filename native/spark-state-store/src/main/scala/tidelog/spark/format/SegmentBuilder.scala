package tidelog.spark.format

import java.nio.charset.StandardCharsets.US_ASCII
import java.util.Arrays

/** Where a piece lies: `length` bytes (its whole block) from byte `offset` of a segment, which is
  * named without its directory, or by the commit that it lies in.
  */
final case class Piece(segment: String, offset: Long, length: Int)

/** Who wrote a segment: `generation` is the start of the driver process in milliseconds since 1970,
  * `process` is ASCII and cut to 16 characters, `counter` numbers the segments of a process.
  */
final case class SegmentAuthor(generation: Long, process: String, counter: Long)

/** The layout of segments: docs/internals/format.md, "Segments". */
private[format] object Segment {
  val Magic = 0x47534c54 // "TLSG", little-endian
  val TrailerMagic = 0x45534c54 // "TLSE"
  val Version = 1
  val HeaderBytes = 44
  val TrailerBytes = 24
  val HeaderCrcAt: Int = HeaderBytes - 4
  val TrailerCrcAt: Int = TrailerBytes - 8
  val ProcessBytes = 16
  val EntryFields = 12

  def header(author: SegmentAuthor): Array[Byte] = {
    val buffer = Block.littleEndian(HeaderBytes)
    buffer.putInt(Magic).put(Version.toByte).put(new Array[Byte](3))
    buffer.putLong(author.generation).putLong(author.counter)
    buffer.put(Arrays.copyOf(author.process.getBytes(US_ASCII), ProcessBytes))
    buffer.putInt(Crc32c.ofRanges(buffer.array, (0, HeaderCrcAt)))
    buffer.array
  }

  def trailer(footerAt: Long, footer: Array[Byte]): Array[Byte] = {
    val buffer = Block.littleEndian(TrailerBytes)
    buffer.putLong(footerAt).putInt(footer.length).put(new Array[Byte](3)).put(Version.toByte)
    buffer.putInt(Crc32c.of(footer, Arrays.copyOf(buffer.array, TrailerCrcAt)))
    buffer.putInt(TrailerMagic)
    buffer.array
  }
}

/** Lays out one segment; not thread-safe.
  *
  * Invariants: contents are not copied before `result`; equal calls give equal bytes.
  */
final class SegmentBuilder(author: SegmentAuthor, segmentName: String) {
  private val parts = Vector.newBuilder[Array[Byte]].addOne(Segment.header(author))
  private var entries = Vector.empty[FooterEntry]
  private var end = Segment.HeaderBytes.toLong

  /** Adds a piece of a changelog and says where it will lie; `pieces` is their number if this is
    * the last one, else 0. The caller does not change `content` any more.
    */
  def add(name: ChangelogName, piece: Int, pieces: Int, content: Array[Byte]): Piece = {
    val framing = Block.framing(name, piece, pieces, content)
    val length = Math.addExact(framing.length, content.length)
    parts.addOne(framing).addOne(content)
    entries :+= FooterEntry(name, end, length, piece, pieces)
    end += length
    Piece(segmentName, entries.last.offset, length)
  }

  /** The segment's bytes; raises ArithmeticException above 2 GiB. */
  def result(): Array[Byte] = {
    val footer = encode(entries)
    val trailer = Segment.trailer(end, footer)
    val total = Math.toIntExact(end + footer.length + trailer.length)
    val bytes = Block.littleEndian(total)
    parts.result().foreach(part => bytes.put(part))
    bytes.put(footer).put(trailer).array
  }

  private def encode(entries: Vector[FooterEntry]): Array[Byte] = {
    val out = new MsgPack.Writer
    out.array(entries.length)
    entries.foreach { entry =>
      out.array(Segment.EntryFields)
      out.string(entry.name.operatorId)
      out.unsigned(entry.name.partition.toLong)
      out.unsigned(Block.SparkChangelog.toLong)
      out.unsigned(entry.offset)
      out.unsigned(entry.length.toLong)
      out.unsigned(entry.name.version)
      out.unsigned(1)
      out.unsigned(0)
      out.unsigned(Block.LastKeyGroup.toLong)
      out.string(entry.name.id)
      out.unsigned(entry.piece.toLong)
      out.unsigned(entry.pieces.toLong)
    }
    out.result()
  }
}
