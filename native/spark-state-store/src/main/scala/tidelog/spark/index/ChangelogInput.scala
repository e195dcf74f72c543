package tidelog.spark.index

import java.io.{EOFException, FileNotFoundException, InputStream}

import org.apache.hadoop.fs.{Path, PositionedReadable, Seekable}

import tidelog.spark.format.{
  BlockReader,
  ChangelogName,
  CorruptObjectException,
  IndexEntry,
  Piece
}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.storage.AtomicFiles

/** The content of a changelog, piece by piece out of segments.
  *
  * Invariant: no byte is returned whose block's checksum, name and piece number were not checked;
  * at most one piece is in memory.
  *
  * @param length bytes of a segment, where they are known
  * @param again reads the index anew: what lay in a commit has moved when the commit is gone
  * @param counted whether a store reads it, which the cache counts
  */
final class ChangelogInput(
    root: CheckpointRoot,
    entry: IndexEntry,
    files: AtomicFiles,
    length: String => Option[Long],
    cache: SegmentCache,
    again: ChangelogName => Option[IndexEntry] = _ => None,
    counted: Boolean = true)
    extends InputStream
    with Seekable
    with PositionedReadable {
  private var position = 0L
  private var loaded = -1
  private var content = Array.emptyByteArray
  private var start = 0L

  override def read(): Int = if (more()) {
    val byte = content((position - start).toInt) & 0xff
    position += 1
    byte
  } else -1

  override def read(bytes: Array[Byte], offset: Int, wanted: Int): Int =
    if (wanted == 0) 0
    else if (!more()) -1
    else {
      val at = (position - start).toInt
      val count = wanted.min(content.length - at)
      System.arraycopy(content, at, bytes, offset, count)
      position += count
      count
    }

  override def available(): Int = (content.length - (position - start)).max(0).toInt

  override def seek(to: Long): Unit = {
    if (to < 0 || to > entry.bytes) throw new EOFException(s"${entry.name.path} has no byte $to")
    if (to < start) {
      loaded = -1
      content = Array.emptyByteArray
      start = 0
    }
    position = to
  }

  override def getPos: Long = position
  override def seekToNewSource(to: Long): Boolean = false

  override def read(at: Long, bytes: Array[Byte], offset: Int, wanted: Int): Int = synchronized {
    val before = position
    try {
      seek(at)
      read(bytes, offset, wanted)
    } finally seek(before)
  }

  override def readFully(at: Long, bytes: Array[Byte], offset: Int, wanted: Int): Unit = {
    var done = 0
    while (done < wanted) {
      val count = read(at + done, bytes, offset + done, wanted - done)
      if (count < 0) throw new EOFException(s"${entry.name.path} ends before byte ${at + wanted}")
      done += count
    }
  }

  override def readFully(at: Long, bytes: Array[Byte]): Unit =
    readFully(at, bytes, 0, bytes.length)

  /** Whether there is a byte at `position`; loads its piece. */
  private def more(): Boolean = {
    while (position >= start + content.length && loaded + 1 < entry.pieces.length) {
      start += content.length
      loaded += 1
      content = piece(loaded)
    }
    position < start + content.length
  }

  private def piece(number: Int): Array[Byte] = {
    val place = entry.pieces(number)
    val path = root.segment(place.segment)
    val pieces = if (number + 1 == entry.pieces.length) entry.pieces.length else 0
    def content = BlockReader.content(
      block(number), entry.name, number, pieces, s"$path at byte ${place.offset}")
    try content
    catch {
      // The bytes may have been damaged on their way only.
      case _: CorruptObjectException =>
        cache.forget(path)
        content
    }
  }

  private def block(number: Int): Array[Byte] = {
    val path = root.segment(entry.pieces(number).segment)
    try {
      try read(entry.pieces(number))
      catch {
        case missing: FileNotFoundException =>
          val moved = again(entry.name).filter { now =>
            now.pieces != entry.pieces && now.pieces.length == entry.pieces.length
          }
          read(moved.getOrElse(throw missing).pieces(number))
      }
    } catch {
      case _: FileNotFoundException => throw lost(path, "no such object")
      case _: EOFException => throw lost(path, "an object that ends before them (truncated)")
    }
  }

  private def read(place: Piece): Array[Byte] =
    cache.read(
      files, root.segment(place.segment), length(place.segment), place.offset, place.length,
      counted)

  private def lost(segment: Path, found: String) = new CorruptObjectException(
    s"segment $segment",
    s"the bytes of ${entry.name.path} that the index names",
    found,
    "bring it back from a backup, or start the query at a batch that does not need it")
}
