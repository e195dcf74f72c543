package tidelog.spark.index

import java.io.FileNotFoundException

import tidelog.spark.format.{
  ChangelogName,
  FooterEntry,
  IndexEntry,
  ObjectNames,
  Piece,
  SegmentReader
}

/** The index, rebuilt from what segments say of themselves.
  *
  * Invariant: an entry has all its pieces, from number 0 to the last, or there is none.
  */
final class FooterSearch(stored: IndexFiles) {

  /** Entries of the wanted changelogs, which are of these batches; reads every footer. Raises
    * CorruptObjectException.
    */
  def entries(batches: Iterable[Long], wanted: ChangelogName => Boolean): Vector[IndexEntry] =
    (batches.flatMap(inCommit) ++ stored.segments().flatMap { case (segment, bytes) =>
      footer(segment, bytes).map(segment -> _)
    }).toVector
      .filter { case (_, entry) => wanted(entry.name) }
      .groupBy { case (_, entry) => entry.name }
      .flatMap { case (name, pieces) => FooterSearch.assemble(name, pieces) }
      .toVector

  private def inCommit(batch: Long): Seq[(String, FooterEntry)] = {
    val segment = ObjectNames.inCommit(batch)
    stored.segmentInCommit(batch).toVector
      .flatMap(SegmentReader.footer(_, segment))
      .map(segment -> _)
  }

  private def footer(segment: String, bytes: Long): Seq[FooterEntry] =
    try stored.footer(segment, bytes)
    // Removed between the listing and the reading: nothing that is needed is.
    catch { case _: FileNotFoundException => Nil }
}

object FooterSearch {
  def assemble(name: ChangelogName, all: Seq[(String, FooterEntry)]): Option[IndexEntry] = {
    // A piece may be there twice: in a commit, and where it has moved. The last one counts.
    val found = all.map(one => one._2.piece -> one).toMap.values.toVector
    val pieces = found.sortBy { case (_, entry) => entry.piece }.map(_._2)
    val total = pieces.map(_.pieces).maxOption.getOrElse(0)
    val complete = total > 0 && pieces.map(_.piece) == (0 until total)
    if (!complete) None
    else {
      val places = found.sortBy(_._2.piece).map { case (segment, entry) =>
        Piece(segment, entry.offset, entry.length)
      }
      Some(IndexEntry(name, FooterSearch.contentBytes(name, pieces), places.toVector))
    }
  }

  /** Bytes of a changelog's content: its blocks without what frames them (docs/internals/format.md). */
  private def contentBytes(name: ChangelogName, pieces: Seq[FooterEntry]): Long = {
    val framing = tidelog.spark.format.Block.framingBytes(name)
    pieces.map(_.length.toLong - framing).sum
  }
}
