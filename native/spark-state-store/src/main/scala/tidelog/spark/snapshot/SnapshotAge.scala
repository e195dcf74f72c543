package tidelog.spark.snapshot

/** What is known of a store's newest snapshots; immutable.
  *
  * Invariant: a snapshot counts as uploaded only when its file was seen in the checkpoint.
  *
  * @param uploaded version of the newest snapshot in the checkpoint, 0 without one
  * @param taken version of the newest one taken here, which may never be uploaded; 0 without one
  */
final case class SnapshotAge(uploaded: Long = 0, taken: Long = 0) {

  /** A snapshot's file is in the checkpoint. */
  def stored(version: Long): SnapshotAge = copy(uploaded = uploaded.max(version))

  /** A version is begun. What an attempt before this one has left of it is in no lineage. */
  def begun(version: Long): SnapshotAge = SnapshotAge(
    if (uploaded < version) uploaded else 0,
    if (taken < version) taken else 0)

  /** Whether this version must come with a snapshot whatever the store's phase is: the newest one
    * is a period old. One that waits for its upload gets half of that, and at least as many
    * versions as Spark would give it.
    *
    * @param minimum Spark's minDeltasForSnapshot
    */
  def late(version: Long, period: Int, minimum: Int): Boolean =
    if (taken > uploaded) version - taken >= minimum.max(period / 2)
    else version - uploaded >= period
}
