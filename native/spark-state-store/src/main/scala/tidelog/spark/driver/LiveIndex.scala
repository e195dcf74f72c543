package tidelog.spark.driver

import scala.collection.immutable.{SortedMap, TreeMap}

import tidelog.spark.format.{ChangelogName, IndexDocument, IndexEntry, ObjectNames}
import tidelog.spark.index.IndexFiles

/** A stored segment.
  *
  * @param bytes length of its object
  * @param newest highest state version of which it holds a piece
  * @param live pieces of committed changelogs in it that Spark may still need
  */
final case class SegmentUse(bytes: Long, newest: Long, live: Int)

/** Which changelogs and segments of a checkpoint are needed; pure, immutable. A segment within a
  * commit is none of them: it goes with the commit.
  *
  * Invariants: `live` of every segment counts exactly the pieces of `batches` that lie in it; a
  * segment is dead only when all batches that could still name it are committed and none does.
  *
  * @param batches committed batches with the changelogs they wrote that are still needed
  * @param committed the newest committed batch, -1 before the first
  * @param rolledUp first batches of the windows whose roll-up is stored
  */
final case class LiveIndex(
    batches: SortedMap[Long, Map[ChangelogName, IndexEntry]] = TreeMap.empty,
    segments: Map[String, SegmentUse] = Map.empty,
    committed: Long = -1,
    rolledUp: Set[Long] = Set.empty) {

  /** A segment was stored. */
  def stored(segment: String, bytes: Long, newest: Long): LiveIndex =
    if (ObjectNames.isInCommit(segment)) this
    else {
      val use = segments.get(segment).fold(SegmentUse(bytes, newest, 0)) { known =>
        known.copy(bytes = bytes, newest = newest.max(known.newest))
      }
      copy(segments = segments.updated(segment, use))
    }

  /** A batch was committed now. If it is not the next one, the query was set back (or the
    * directory emptied): what came after it is not committed any more.
    */
  def publish(batch: Long, entries: Iterable[IndexEntry]): LiveIndex = {
    val (kept, undone) = batches.partition { case (other, _) => other < batch }
    copy(
      batches = kept,
      segments = count(undone.valuesIterator.flatMap(_.valuesIterator).toVector, -1),
      committed = batch,
      rolledUp = rolledUp.filter(first => lastOf(first) < batch)).add(batch, entries)
  }

  /** A committed batch was read from the stored index. */
  def add(batch: Long, entries: Iterable[IndexEntry]): LiveIndex = {
    val before = batches.getOrElse(batch, Map.empty)
    val added = entries.filterNot(entry => before.contains(entry.name)).toVector
    copy(
      batches = batches.updated(batch, before ++ added.map(entry => entry.name -> entry)),
      segments = count(added, +1),
      committed = committed.max(batch))
  }

  /** The needed changelogs of a window that lie in commits. */
  def inCommits(first: Long): Vector[IndexEntry] =
    batches.range(first, lastOf(first) + 1).valuesIterator.flatMap(_.valuesIterator)
      .filter(_.pieces.exists(piece => ObjectNames.isInCommit(piece.segment))).toVector

  /** Changelogs lie in other places now. */
  def moved(entries: Vector[IndexEntry]): LiveIndex =
    entries.groupBy(_.name.batch).foldLeft(delete(entries.map(_.name))) {
      case (index, (batch, there)) => index.add(batch, there)
    }

  /** What was written before a version is not needed any more.
    *
    * @param floors that version by the directory of the store
    */
  def expire(floors: Map[String, Long]): LiveIndex = {
    val old = floors.valuesIterator.maxOption.map(batches.rangeUntil)
    delete(old.toVector.flatMap(_.valuesIterator).flatMap(_.keysIterator).filter { name =>
      floors.get(name.directory).exists(name.version < _)
    })
  }

  /** These changelogs are not needed any more. */
  def delete(names: Iterable[ChangelogName]): LiveIndex = names.foldLeft(this) { (index, name) =>
    val entries = index.batches.getOrElse(name.batch, Map.empty)
    entries.get(name).fold(index) { entry =>
      index.copy(
        batches = index.batches.updated(name.batch, entries - name),
        segments = index.count(Seq(entry), -1))
    }
  }

  /** Segments nothing can need any more: no live piece, and every version in them is settled.
    * True right after `publish` and `delete`, before a task of a later batch can add to it.
    */
  def deadSegments: Set[String] =
    segments.collect {
      case (name, use) if use.live == 0 && use.newest <= committed + 1 => name
    }.toSet

  def withoutSegments(names: Set[String]): LiveIndex = copy(segments = segments -- names)

  /** Windows that are complete and not rolled up. */
  def dueWindows: Vector[Long] =
    windows.filter(first => lastOf(first) <= committed && !rolledUp(first) && liveIn(first))

  def withRollUp(first: Long): LiveIndex = copy(rolledUp = rolledUp + first)

  /** The roll-up of the window that a batch is in does not count. */
  def withoutRollUp(batch: Long): LiveIndex =
    copy(rolledUp = rolledUp - IndexFiles.windowOf(batch))

  /** Rolled-up windows of which no changelog is needed any more. */
  def deadWindows: Set[Long] =
    rolledUp.filter(first => lastOf(first) <= committed && !liveIn(first))

  def withoutWindows(firsts: Set[Long]): LiveIndex = copy(
    rolledUp = rolledUp -- firsts,
    batches = batches.filterNot { case (batch, entries) =>
      entries.isEmpty && batch < IndexFiles.windowOf(committed.max(0))
    })

  /** Whether a commit file is the only place of entries that are needed. */
  def onlyIndexOf(batch: Long): Boolean =
    batches.get(batch).exists(_.nonEmpty) && !rolledUp(IndexFiles.windowOf(batch))

  /** The index document of `last - first + 1` batches. */
  def document(first: Long, last: Long): IndexDocument = {
    val entries = batches.range(first, last + 1).valuesIterator.flatMap(_.valuesIterator).toVector
    val named = entries.flatMap(_.pieces.map(_.segment)).toSet
    val lengths = named.map(segment => segment -> segments(segment).bytes).toMap
    IndexDocument(first, last, lengths, entries)
  }

  def rollUp(first: Long): IndexDocument = document(first, lastOf(first))

  /** Bytes of all segments that are known. */
  def storedBytes: Long = segments.valuesIterator.map(_.bytes).sum

  private def windows: Vector[Long] =
    batches.keysIterator.map(IndexFiles.windowOf).toVector.distinct

  private def lastOf(first: Long): Long = first + ObjectNames.BatchesPerRollUp - 1

  private def liveIn(first: Long): Boolean =
    batches.range(first, lastOf(first) + 1).valuesIterator.exists(_.nonEmpty)

  private def count(entries: Seq[IndexEntry], by: Int): Map[String, SegmentUse] =
    entries
      .flatMap(_.pieces.map(_.segment))
      .filterNot(ObjectNames.isInCommit)
      .foldLeft(segments) { (uses, segment) =>
        val use = uses.getOrElse(segment, SegmentUse(0, 0, 0))
        uses.updated(segment, use.copy(live = use.live + by))
      }
}
