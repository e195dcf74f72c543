package tidelog.spark.snapshot

/** How many versions lie between two snapshots of a state store; pure.
  *
  * With the changelogs of all partitions in a few segments, a longer chain costs a restart little,
  * while every snapshot costs a handful of requests; so the stores of a fast query take them at
  * intervals of time, those of a slow one after as many versions as Spark would.
  *
  * Invariant: a period is the minimum times a power of two, so when the pace changes, a version
  * that is due by the longer period is also due by the shorter one.
  */
object SnapshotPeriod {

  /** Spark writes the ids of all versions since the last snapshot into every changelog. */
  private val MostDoublings = 4

  /** @param minimum Spark's minDeltasForSnapshot
    * @param intervalMs the time that the period should not exceed by doubling it
    * @param versionMs milliseconds from one version to the next, if known
    */
  def versions(minimum: Int, intervalMs: Long, versionMs: Option[Double]): Int = {
    val first = minimum.max(1)
    val periods = (0 to MostDoublings).map(first << _)
    versionMs.flatMap(ms => periods.findLast(_ * ms <= intervalMs)).getOrElse(first)
  }
}
