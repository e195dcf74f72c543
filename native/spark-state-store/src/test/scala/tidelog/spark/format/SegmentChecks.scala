package tidelog.spark.format

import java.util.Arrays

import tidelog.spark.Checks
import tidelog.spark.Checks._

/** Checks of blocks and segments; `stored` is the golden segment. */
private[format] final class SegmentChecks(checks: Checks, stored: Array[Byte]) {
  private val name = Golden.Large
  private val block = slice(Golden.Places.head)

  def run(): Unit = {
    checks.check("the footer finds every piece, and its block holds the content") {
      val entries = SegmentReader.footer(stored, "s")
      equal(entries.length, Golden.Pieces.length)
      entries.zip(Golden.Pieces).zip(Golden.Places).foreach {
        case ((entry, (name, piece, pieces, content)), place) =>
          equal(entry, FooterEntry(name, place.offset, place.length, piece, pieces))
          equalBytes(BlockReader.content(slice(place), name, piece, pieces, "s"), content)
          equal(place.length, Block.framingBytes(name) + content.length)
      }
    }
    checks.check("a footer is read from the segment's end") {
      val read = (at: Long, length: Int) =>
        Arrays.copyOfRange(stored, at.toInt, at.toInt + length)
      val entries = SegmentReader.footerAt(stored.length.toLong, read, "s")
      equal(entries, SegmentReader.footer(stored, "s"))
    }
    checks.check("a footer longer than the first reading is read whole") {
      val builder = new SegmentBuilder(Golden.Author, "s")
      (1 to 3000).foreach(version => builder.add(name.copy(version = version), 0, 1, Array(1)))
      val data = builder.result()
      var readings = 0
      val read = (at: Long, length: Int) => {
        readings += 1
        Arrays.copyOfRange(data, at.toInt, at.toInt + length)
      }
      val entries = SegmentReader.footerAt(data.length.toLong, read, "s")
      equal(entries.map(_.name.version), (1L to 3000L).toVector)
      equal(readings, 2)
    }
    checks.check("a segment without a piece is read") {
      val empty = new SegmentBuilder(Golden.Author, "s").result()
      equal(SegmentReader.footer(empty, "s"), Vector.empty[FooterEntry])
    }
    checks.check("every flipped bit of a segment is found") {
      flips(stored).foreach(data => refused("a.seg")(SegmentReader.footer(data, "a.seg")))
    }
    checks.check("every truncation of a segment is found") {
      truncations(stored).foreach(data => refused("a.seg")(SegmentReader.footer(data, "a.seg")))
    }
    checks.check("bytes after the trailer are found") {
      refused("a.seg")(SegmentReader.footer(stored :+ 0.toByte, "a.seg"))
    }
    checks.check("a footer that names another changelog than its block is refused") {
      val (one, other) = (segmentOf("a"), segmentOf("b"))
      val end = Segment.HeaderBytes + Block.framingBytes(name.copy(id = "a"))
      refused("12_b")(SegmentReader.footer(one.take(end) ++ other.drop(end), "a.seg"))
    }
    checks.check("every flipped bit of a block is found") {
      flips(block).foreach(data => refused("a.seg")(content(data)))
    }
    checks.check("every truncation of a block is found") {
      truncations(block).foreach(data => refused("a.seg")(content(data)))
    }
    checks.check("the block of another changelog or piece is refused") {
      refused(name.copy(id = "x").path)(BlockReader.content(block, name.copy(id = "x"), 0, 0, "s"))
      refused("piece 1 of")(BlockReader.content(block, name, 1, 0, "s"))
      refused("the last of 1")(BlockReader.content(block, name, 0, 1, "s"))
    }
    checks.check("a block with bytes after it is refused") {
      refused("a.seg")(content(block :+ 0.toByte))
    }
    checks.check("a block of another kind, codec or flag is refused under a good checksum") {
      Seq(5, 6, 7).foreach { at =>
        val strange = block.clone()
        strange(at) = 9
        val crc = Crc32c.ofRanges(strange, (0, Block.CrcAt), (Block.HeaderBytes, strange.length))
        Block.littleEndian(strange).putInt(Block.CrcAt, crc)
        refused("newer one")(content(strange))
      }
    }
  }

  private def segmentOf(id: String): Array[Byte] = {
    val builder = new SegmentBuilder(Golden.Author, "s")
    builder.add(name.copy(id = id), 0, 1, Array.emptyByteArray)
    builder.result()
  }

  private def content(data: Array[Byte]): Array[Byte] =
    BlockReader.content(data, name, 0, 0, "a.seg")

  private def slice(place: Piece): Array[Byte] =
    Arrays.copyOfRange(stored, place.offset.toInt, place.offset.toInt + place.length)
}
