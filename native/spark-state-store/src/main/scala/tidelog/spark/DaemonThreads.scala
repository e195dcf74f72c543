package tidelog.spark

import java.util.concurrent.{LinkedBlockingQueue, ThreadFactory, ThreadPoolExecutor, TimeUnit}
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

private[spark] object DaemonThreads {

  /** At most so many threads, which end when they have had no work for a while. */
  def pool(name: String, most: Int): ThreadPoolExecutor = {
    val threads = new ThreadPoolExecutor(
      most, most, IdleSeconds, TimeUnit.SECONDS, new LinkedBlockingQueue[Runnable],
      DaemonThreads(name))
    threads.allowCoreThreadTimeOut(true)
    threads
  }

  private val IdleSeconds = 10L
}
