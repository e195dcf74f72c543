package tidelog.spark.executor

import tidelog.spark.format.{ChangelogName, IndexEntry, Piece}
import tidelog.spark.snapshot.SnapshotTurn

/** A changelog on its way to the store; thread-safe, shared by the task and the uploads.
  *
  * Invariant: it is complete once its last piece was handed over and every piece is durable; then
  * exactly one caller of `stored` gets its index entry. Once one piece is lost it never completes.
  *
  * @param turn whether its version comes with a snapshot
  */
final class PendingChangelog(
    val name: ChangelogName,
    val turn: SnapshotTurn = SnapshotTurn.NotYet) {
  private var pieces = Vector.empty[Option[Piece]]
  private var bytes = 0L
  private var closed = false
  private var lost = false

  /** Number of the piece handed over now. */
  def handOver(length: Int, last: Boolean): Int = synchronized {
    pieces :+= None
    bytes += length
    closed = last
    pieces.length - 1
  }

  /** Notes that a piece is durable; the index entry if that completes the changelog. */
  def stored(number: Int, piece: Piece): Option[IndexEntry] = synchronized {
    pieces = pieces.updated(number, Some(piece))
    if (closed && !lost && pieces.forall(_.isDefined)) {
      Some(IndexEntry(name, bytes, pieces.flatten))
    } else None
  }

  def lose(): Unit = synchronized {
    lost = true
  }
}
