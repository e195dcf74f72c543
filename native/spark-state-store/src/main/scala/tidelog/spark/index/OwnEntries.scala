package tidelog.spark.index

import scala.collection.immutable.TreeMap

import tidelog.spark.format.{ChangelogName, IndexEntry}
import tidelog.spark.rpc.SegmentDurable

/** What this JVM has stored itself, before any index says so.
  *
  * Invariants: no method makes a request, so an upload never waits for a reader of the index; the
  * newest `limit` batches are kept.
  */
private[index] final class OwnEntries(limit: Int) {
  private var batches = TreeMap.empty[Long, Map[ChangelogName, IndexEntry]]
  private var lengths = TreeMap.empty[Long, Map[String, Long]]

  def add(durable: SegmentDurable): Unit = synchronized {
    durable.complete.groupBy(_.name.batch).foreach { case (batch, entries) =>
      val known = batches.getOrElse(batch, Map.empty)
      batches = batches.updated(batch, known ++ entries.map(entry => entry.name -> entry))
    }
    val newest = durable.newest - 1
    val segments = lengths.getOrElse(newest, Map.empty)
    lengths = lengths.updated(newest, segments.updated(durable.segment, durable.bytes))
    batches = batches.takeRight(limit)
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
