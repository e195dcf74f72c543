package tidelog.spark.executor

/** The bound on bytes that are handed over and not yet durable; tasks wait here.
  *
  * Invariant: more than `limit` bytes are in flight only if one hand-over alone is larger.
  */
final class InFlightBytes(limit: Long) {
  private var inFlight = 0L
  private var waitedNs = 0L

  /** Takes the room, waiting while there is none; `full` runs once before the first wait. */
  def acquire(bytes: Long)(full: => Unit): Unit = {
    if (!tryAcquire(bytes)) {
      full
      waitFor(bytes)
    }
  }

  def release(bytes: Long): Unit = synchronized {
    inFlight -= bytes
    notifyAll()
  }

  def bytes: Long = synchronized(inFlight)

  /** Milliseconds tasks have waited here since the start, summed over tasks. */
  def waitedMs: Long = synchronized(waitedNs / 1000000)

  private def tryAcquire(bytes: Long): Boolean = synchronized {
    val fits = inFlight == 0 || inFlight + bytes <= limit
    if (fits) inFlight += bytes
    fits
  }

  private def waitFor(bytes: Long): Unit = synchronized {
    val start = System.nanoTime()
    while (!tryAcquire(bytes)) wait()
    waitedNs += System.nanoTime() - start
  }
}
