package tidelog.spark.snapshot

import scala.collection.immutable.{SortedSet, TreeSet}

/** What is known of a store's newest snapshots; immutable.
  *
  * Invariant: a snapshot counts as uploaded only when its file was seen in the checkpoint.
  *
  * @param snapshots versions of those in the checkpoint
  * @param taken version of the newest one taken here, which may never be uploaded; 0 without one
  */
final case class SnapshotAge(snapshots: SortedSet[Long] = TreeSet.empty, taken: Long = 0) {

  /** Version of the newest snapshot in the checkpoint, 0 without one. */
  def uploaded: Long = snapshots.lastOption.getOrElse(0L)

  /** A snapshot's file is in the checkpoint. */
  def stored(version: Long): SnapshotAge = copy(snapshots = snapshots + version)

  /** A version is begun. What an attempt before this one has left of it is in no lineage. */
  def begun(version: Long): SnapshotAge =
    SnapshotAge(snapshots.rangeUntil(version), if (taken < version) taken else 0)

  /** Whether this version must come with a snapshot whatever the store's phase is: the newest one
    * is a period old. One that waits for its upload gets half of that, and at least as many
    * versions as Spark would give it.
    *
    * @param minimum Spark's minDeltasForSnapshot
    */
  def late(version: Long, period: Int, minimum: Int): Boolean =
    if (taken > uploaded) version - taken >= minimum.max(period / 2)
    else version - uploaded >= period

  /** Version of the snapshot that the oldest retained version is restored from, 0 if there is none:
    * Spark's own rule of what it deletes.
    *
    * @param retained Spark's minBatchesToRetain
    */
  def floor(retained: Int): Long =
    snapshots.rangeTo(uploaded - retained + 1).lastOption.getOrElse(0L)

  /** Without what is before the floor. */
  def from(floor: Long): SnapshotAge = copy(snapshots = snapshots.rangeFrom(floor))
}
