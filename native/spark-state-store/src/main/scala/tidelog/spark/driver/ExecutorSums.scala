package tidelog.spark.driver

import tidelog.spark.executor.ExecutorMetrics

/** The sums of what executors say of themselves in their polls.
  *
  * Invariant: a total never falls: what an executor had counted stays when it is gone; the level of
  * an executor that is gone counts no more.
  */
final class ExecutorSums {
  private var latest = Map.empty[String, Map[String, Long]]
  private var gone = Map.empty[String, Long]

  def alive: Int = synchronized(latest.size)

  def sum(name: String): Long = synchronized {
    val values = latest.valuesIterator.map(_.getOrElse(name, 0L))
    if (ExecutorMetrics.Largest.contains(name)) values.maxOption.getOrElse(0L)
    else gone.getOrElse(name, 0L) + values.sum
  }

  def report(executor: String, figures: Map[String, Long]): Unit = synchronized {
    latest = latest.updated(executor, latest.getOrElse(executor, Map.empty) ++ figures)
  }

  def removed(executor: String): Unit = synchronized {
    val last = latest.getOrElse(executor, Map.empty)
    gone = ExecutorMetrics.Totals.map { name =>
      name -> (gone.getOrElse(name, 0L) + last.getOrElse(name, 0L))
    }.toMap
    latest -= executor
  }
}
