package tidelog.spark.index

import java.util.concurrent.{Callable, ExecutionException, Executors}

import scala.jdk.CollectionConverters._

import tidelog.spark.DaemonThreads

/** Threads for the requests of a restart, of which many are small and none needs another's answer.
  *
  * Invariant: what runs here never waits for something else that runs here.
  */
private[index] object Reads {
  private val Threads = 8
  private val pool = Executors.newFixedThreadPool(Threads, DaemonThreads("tidelog-read"))

  /** All results, in order; the first error if one fails. */
  def all[A, B](items: Seq[A])(read: A => B): Seq[B] =
    if (items.lengthIs <= 1) items.map(read)
    else {
      val tasks = items.map(item => (() => read(item)): Callable[B])
      try pool.invokeAll(tasks.asJava).asScala.map(_.get()).toSeq
      catch { case error: ExecutionException => throw error.getCause }
    }

  /** Runs when a thread is free. */
  def later(read: => Unit): Unit = pool.execute(() => read)
}
