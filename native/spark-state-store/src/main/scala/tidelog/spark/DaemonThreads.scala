package tidelog.spark

import java.util.concurrent.ThreadFactory
import java.util.concurrent.atomic.AtomicInteger

/** Names threads, and lets the JVM end while they run. */
private[spark] final case class DaemonThreads(name: String) extends ThreadFactory {
  private val count = new AtomicInteger

  override def newThread(work: Runnable): Thread = {
    val thread = new Thread(work, s"$name-${count.incrementAndGet()}")
    thread.setDaemon(true)
    thread
  }
}
