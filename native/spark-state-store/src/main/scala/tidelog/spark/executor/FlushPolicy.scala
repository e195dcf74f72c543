package tidelog.spark.executor

/** What is known about the segment being filled. Times are System.nanoTime in milliseconds.
  *
  * @param openChangelogs changelogs that tasks of this executor are writing now
  * @param tasks the tasks of the query on this executor
  * @param firstMs when its oldest bytes were handed over
  * @param lastMs when its newest bytes were handed over
  */
final case class Filling(
    openChangelogs: Int,
    tasks: TaskPace,
    bytes: Long,
    firstMs: Long,
    lastMs: Long)

/** When a segment's upload starts; pure.
  *
  * The driver's barrier is what normally starts it, so that a batch costs one segment. An executor
  * that has had no task of the query for the linger has most probably ended its part of the batch
  * and need not wait for the others; bytes that are old or many leave while the batch still runs,
  * so that little is left for its end.
  */
final case class FlushPolicy(segmentBytes: Long, lingerMs: Long, maxAgeMs: Long) {

  /** Milliseconds until the upload should start if nothing else happens; 0 or less means now. */
  def startsIn(filling: Filling, nowMs: Long): Long = {
    val aged = filling.firstMs + maxAgeMs - nowMs
    val tasks = filling.tasks
    if (filling.bytes >= segmentBytes) 0
    else if (filling.openChangelogs > 0 || tasks.running.nonEmpty) aged
    else {
      val idleSince = tasks.endedMs.fold(filling.lastMs)(_.max(filling.lastMs))
      aged.min(idleSince + tasks.lingerMs(lingerMs) - nowMs)
    }
  }
}
