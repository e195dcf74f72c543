package tidelog.spark.snapshot

/** Whether a version of a state store comes with a snapshot. */
sealed trait SnapshotTurn

object SnapshotTurn {
  case object Taken extends SnapshotTurn

  /** Spark's own rule would have asked for one in this version; it comes in a later one. */
  case object PutOff extends SnapshotTurn
  case object NotYet extends SnapshotTurn

  /** @param minimum Spark's minDeltasForSnapshot
    * @param due whether the store's phase says that it is time
    */
  def of(version: Long, minimum: Int, due: Boolean): SnapshotTurn =
    if (due) Taken else if (version % minimum.max(1) == 0) PutOff else NotYet
}

/** The snapshots of a store that commits a version.
  *
  * @param uploaded version of the newest snapshot in the checkpoint, 0 without one
  * @param floor no version before this one is needed any more, and so no changelog
  */
final case class SnapshotStatus(turn: SnapshotTurn, uploaded: Long = 0, floor: Long = 0)
