package tidelog.spark.index

import scala.collection.immutable.TreeMap

import tidelog.spark.format.{ChangelogName, IndexEntry}
import tidelog.spark.rpc.StoredSegment

/** What this JVM has stored itself, before any index says so.
  *
  * Invariants: no method makes a request, so an upload never waits for a reader of the index; the
  * newest `limit` batches are kept.
  */
private[index] final class OwnEntries(limit: Int) {
  private var batches = TreeMap.empty[Long, Map[ChangelogName, IndexEntry]]
  private var lengths = TreeMap.empty[Long, Map[String, Long]]

  def add(entry: IndexEntry, segments: Vector[StoredSegment]): Unit = synchronized {
    val batch = entry.name.batch
    val known = batches.getOrElse(batch, Map.empty[ChangelogName, IndexEntry])
    batches = batches.updated(batch, known.updated(entry.name, entry)).takeRight(limit)
    val sizes = lengths.getOrElse(batch, Map.empty[String, Long])
    lengths = lengths.updated(batch, sizes ++ segments.map(one => one.name -> one.bytes))
    lengths = lengths.takeRight(limit)
  }

  def find(name: ChangelogName): Option[IndexEntry] =
    synchronized(batches.get(name.batch)).flatMap(_.get(name))

  def entries: Iterator[IndexEntry] = synchronized(batches).valuesIterator.flatMap(_.valuesIterator)

  /** Length of a segment in bytes. */
  def length(segment: String): Option[Long] =
    synchronized(lengths).valuesIterator.flatMap(_.get(segment)).nextOption()

  /** The stored index knows this batch now. */
  def settled(batch: Long): Unit = synchronized(batches -= batch)
}
