package tidelog.spark.snapshot

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.RocksDB

import tidelog.spark.format.ChangelogName

/** The snapshots of one open state store, as its file manager sees them.
  *
  * Invariants: a version comes with a snapshot if it is the store's phase, or if the newest
  * uploaded snapshot is a period old; a store that was opened just now, by a new run or on another
  * executor, knows that from what it found there, and its period is Spark's own until it has
  * committed that often; the first version of such a store, if it is late, is uploaded when its
  * task has ended, because a short run ends before Spark's next maintenance.
  */
final class StoreSnapshots {
  private var pace = Pace.start
  private var age = SnapshotAge()
  private var storedAtMs = nowMs
  private var first = 0L
  private var newest = 0L
  private var period = 0
  private var late = false
  private var tickMs = 0L
  private var store = Option.empty[RocksDB]

  /** The file of a snapshot is in the checkpoint. */
  def stored(version: Long): Unit = synchronized {
    if (version > age.uploaded) storedAtMs = nowMs
    age = age.stored(version)
  }

  /** Spark opens the changelog of a version, which is before it decides about a snapshot; what it
    * will decide.
    *
    * @param intervalMs the time that the period should not exceed; None: Spark decides
    * @param retained Spark's minBatchesToRetain
    */
  def begin(
      directory: Path,
      name: ChangelogName,
      intervalMs: Option[Long],
      retained: Int): SnapshotStatus =
    synchronized {
      pace = pace.seen(name.version, nowMs)
      age = age.begun(name.version)
      if (first == 0) first = name.version
      newest = name.version
      OpenStores.add(this)
      val floor = age.floor(retained)
      age = age.from(floor)
      val uploaded = age.uploaded
      val turn = intervalMs.flatMap { ms =>
        if (store.isEmpty) store = SparkStores.find(directory, name)
        store.map(decide(_, name, ms))
      }
      SnapshotStatus(turn.getOrElse(SnapshotTurn.NotYet), uploaded, floor)
    }

  /** The store, if its version that was begun last shall not wait for Spark's maintenance. */
  def dueAtOnce: Option[RocksDB] = synchronized(store.filter(_ => late && newest == first))

  /** Whether a version was begun: the store writes. */
  def isOpen: Boolean = synchronized(first > 0)

  def close(): Unit = OpenStores.remove(this)

  /** Versions since the newest uploaded snapshot. */
  def lag: Long = synchronized(newest - age.uploaded)

  /** Whether uploads of snapshots fall behind. */
  def isLate: Boolean = synchronized {
    period > 0 && lag >= 2L * period && nowMs - storedAtMs > StoreSnapshots.LateTicks * tickMs
  }

  private def decide(store: RocksDB, name: ChangelogName, intervalMs: Long): SnapshotTurn = {
    val minimum = store.conf.minDeltasForSnapshot
    tickMs = store.conf.stateStoreConf.maintenanceInterval
    val boundMs = intervalMs.min(StoreSnapshots.MostTicks * tickMs)
    period = SnapshotPeriod.versions(minimum, boundMs, pace.after(minimum))
    late = age.late(name.version, period, minimum)
    val due = late ||
      SnapshotPhase.due(name.version, period, name.operator, name.partition, name.store)
    val last = SnapshotPhase.lastSnapshot(name.version, minimum, due)
    if (!SparkStores.setLastSnapshot(store, last)) SnapshotTurn.NotYet
    else {
      if (due) age = age.copy(taken = name.version)
      SnapshotTurn.of(name.version, minimum, due)
    }
  }

  private def nowMs: Long = System.nanoTime() / 1000000
}

object StoreSnapshots {

  /** The longest period, in maintenance intervals: after ten Spark forces an upload in a task. */
  private val MostTicks = 5L

  /** A maintenance that comes a few times too late is no trouble yet. */
  private val LateTicks = 5L
}
