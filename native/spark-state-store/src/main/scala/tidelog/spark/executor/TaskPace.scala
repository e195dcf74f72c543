package tidelog.spark.executor

/** The tasks of one query on this executor, as Spark tells of them; immutable. Times are those of
  * `Filling`.
  *
  * @param running tasks that run now
  * @param batch the batch of the newest task
  * @param endedMs when the last task ended
  * @param gapMs the longest time lately that the executor had no task while a batch went on
  */
final case class TaskPace(
    running: Set[Long] = Set.empty,
    batch: Option[String] = None,
    endedMs: Option[Long] = None,
    gapMs: Long = 0) {

  def started(task: Long, of: Option[String], nowMs: Long): TaskPace = {
    val gap = endedMs.filter(_ => running.isEmpty && batch.isDefined && of == batch).map(nowMs - _)
    // A gap is forgotten slowly: most tasks follow one another at once, also where some do not.
    val kept = if (of == batch) gapMs else gapMs - gapMs / 4
    copy(running = running + task, batch = of, gapMs = gap.fold(kept)(kept.max))
  }

  def ended(task: Long, nowMs: Long): TaskPace =
    if (running(task)) copy(running = running - task, endedMs = Some(nowMs)) else this

  /** How long an executor without tasks waits for the next one: beyond the gaps of its batches. */
  def lingerMs(atLeast: Long): Long = atLeast.max(2 * gapMs)
}
