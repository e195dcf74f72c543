package tidelog.benchmark

import java.io.InterruptedIOException
import java.util.concurrent.atomic.AtomicLongArray

/** What all requests of this JVM share: the numbers that their latencies are drawn by, and the link.
  *
  * Invariants: the sum of all transfers never exceeds the rate of the link, nor one of them that of
  * its connection; n transfers at once get an equal share each, for they take turns in chunks.
  */
object Network {
  private val Kinds = Seq("put", "get", "list", "head", "delete")
  private val Chunk = 256L * 1024
  private val numbers = new AtomicLongArray(Kinds.size)
  private val began = System.nanoTime()
  private var freeAt = 0.0
  @volatile private var delays = true

  /** Requests are numbered from 0 again, so that the next run draws the latencies of this one. */
  def restart(): Unit = {
    Kinds.indices.foreach(numbers.set(_, 0))
    delays = true
  }

  /** Until the next start nothing has a delay: what a query does when it ends is not measured. */
  def end(): Unit = delays = false

  /** Returns when the next request of a kind has had its latency. */
  def await(kind: String, profile: LatencyProfile): Unit = {
    val number = numbers.getAndIncrement(Kinds.indexOf(kind))
    if (delays && profile.latencyMs > 0) {
      sleep(StoreLatency.ms(profile.latencyMs, profile.seed, kind, number) / 1e3)
    }
  }

  /** Returns when the bytes are through. */
  def transfer(bytes: Long, profile: LatencyProfile): Unit =
    if (delays && profile.transferSeconds > 0) {
      var (left, ended) = (bytes, now)
      while (left > 0) {
        val chunk = left.min(Chunk)
        // From the end of the chunk before, not from this thread's late awakening.
        ended = reserve(chunk, ended, profile) + chunk * profile.transferSeconds
        left -= chunk
        sleep(ended - now)
      }
    }

  private def reserve(chunk: Long, earliest: Double, link: LatencyProfile): Double = synchronized {
    val start = earliest.max(freeAt)
    freeAt = start + chunk * link.linkSeconds
    start
  }

  private def now: Double = (System.nanoTime() - began) / 1e9

  private def sleep(seconds: Double): Unit = {
    val nanos = (seconds * 1e9).toLong
    if (nanos > 0) {
      try Thread.sleep(nanos / 1000000, (nanos % 1000000).toInt)
      catch {
        case e: InterruptedException =>
          Thread.currentThread().interrupt()
          throw new InterruptedIOException("a request was interrupted").initCause(e)
      }
    }
  }
}
