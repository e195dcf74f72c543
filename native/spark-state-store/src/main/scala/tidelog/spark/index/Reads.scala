package tidelog.spark.index

import java.util.concurrent.{Callable, ExecutionException, Executors}

import scala.jdk.CollectionConverters._

import tidelog.spark.DaemonThreads

/** Threads for the requests of a restart, of which many are small and none needs another's answer.
  *
  * Invariants: what runs here never waits for something else that runs here; nothing waits for a
  * thread that another checkpoint's store keeps.
  */
private[index] object Reads {
  private val AtOnce = 8
  private val threads = Executors.newCachedThreadPool(DaemonThreads("tidelog-read"))

  /** All results, in order; the first error if one fails. At most eight requests at once. */
  def all[A, B](items: Seq[A])(read: A => B): Seq[B] =
    if (items.lengthIs <= 1) items.map(read)
    else {
      val shares = items.grouped((items.length + AtOnce - 1) / AtOnce).toSeq
      val tasks = shares.map(share => (() => share.map(read)): Callable[Seq[B]])
      try threads.invokeAll(tasks.asJava).asScala.flatMap(_.get()).toSeq
      catch { case error: ExecutionException => throw error.getCause }
    }

  def later(read: => Unit): Unit = threads.execute(() => read)
}
