package tidelog.spark.snapshot

/** When a state store takes a snapshot of its table; pure.
  *
  * Spark lets all stores do it in the same batch. Here the store of each operator and partition has
  * a phase, so that each batch carries about `1 / period` of them, and a snapshot still follows the
  * one before it after `period` versions.
  */
object SnapshotPhase {

  /** Whether the store snapshots this version; the period counts versions and is at least 1. */
  def due(version: Long, period: Int, operator: Long, partition: Int, store: String): Boolean =
    (version + phase(period, operator, partition, store)) % period == 0

  private def phase(period: Int, operator: Long, partition: Int, store: String): Long = {
    // The steps of a number that is coprime to the period reach each version once, so no batch has
    // two snapshots more than another; long ones spread a few stores over the whole period.
    val step = if (period % Step == 0) 1 else Step
    val number = partition + operator * 3 + Math.floorMod(store.hashCode, 1009)
    Math.floorMod(number * step, period.toLong)
  }

  private val Step = 101L

  /** The version the store shall believe it has snapshotted last, so that Spark's own rule
    * (`version - last >= period`) says what `due` says.
    */
  def lastSnapshot(version: Long, period: Int, due: Boolean): Long =
    if (due) version - period else version - period + 1
}
