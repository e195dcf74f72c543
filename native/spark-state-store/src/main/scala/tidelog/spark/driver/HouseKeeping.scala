package tidelog.spark.driver

/** What the house-keeping of one checkpoint has done; thread-safe.
  *
  * @param rollUps roll-ups written
  * @param deleted segments removed because nothing needed them
  * @param failed removals and roll-ups that failed and are tried again
  * @param liveSegments segments that are stored
  * @param liveBytes their bytes
  */
final case class HouseKept(
    rollUps: Long = 0,
    deleted: Long = 0,
    failed: Long = 0,
    liveSegments: Long = 0,
    liveBytes: Long = 0)

/** Counts the house-keeping of one checkpoint, for the driver's metrics and for the batch reports.
  */
final class HouseKeeping(metrics: DriverMetrics) {
  private var kept = HouseKept()

  def rolledUp(): Unit = {
    metrics.rollUps.inc()
    update(now => now.copy(rollUps = now.rollUps + 1))
  }

  /** A roll-up has moved what lay in commits into a segment of its own. */
  def packed(bytes: Long): Unit = {
    metrics.rollUpSegments.inc()
    metrics.rollUpBytes.inc(bytes)
  }

  def deletedSegment(): Unit = {
    metrics.segmentsDeleted.inc()
    update(now => now.copy(deleted = now.deleted + 1))
  }

  def swept(segments: Long): Unit = {
    metrics.swept.inc(segments)
    update(now => now.copy(deleted = now.deleted + segments))
  }

  def failed(): Unit = {
    metrics.houseKeepingFailures.inc()
    update(now => now.copy(failed = now.failed + 1))
  }

  def live(segments: Long, bytes: Long): Unit = {
    metrics.live(segments, bytes)
    update(_.copy(liveSegments = segments, liveBytes = bytes))
  }

  /** What was done since the last call. */
  def take(): HouseKept = synchronized {
    val taken = kept
    kept = HouseKept(liveSegments = kept.liveSegments, liveBytes = kept.liveBytes)
    taken
  }

  private def update(change: HouseKept => HouseKept): Unit = synchronized {
    kept = change(kept)
  }
}
