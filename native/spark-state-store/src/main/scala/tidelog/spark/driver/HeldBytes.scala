package tidelog.spark.driver

/** The bound on bytes of parts that the driver holds, of all queries; thread-safe. */
final class HeldBytes(limit: Long) {
  private var held = 0L

  /** Whether there is room; takes it then. */
  def take(bytes: Long): Boolean = synchronized {
    val fits = held + bytes <= limit
    if (fits) held += bytes
    fits
  }

  def release(bytes: Long): Unit = synchronized(held -= bytes)

  def bytes: Long = synchronized(held)
}
