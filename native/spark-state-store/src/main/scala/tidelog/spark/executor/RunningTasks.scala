package tidelog.spark.executor

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

/** The tasks that run on this executor, by query; Spark says when each starts and ends.
  *
  * Invariant: every task that is noted is also ended, however it ends.
  *
  * @param idle called when the last task of a query has ended
  */
final class RunningTasks(idle: String => Unit) {
  private val paces = new ConcurrentHashMap[String, TaskPace]

  /** The task of this thread starts. */
  def started(task: TaskContext): Unit = RunningTasks.query(task).foreach { query =>
    val (id, batch) = (task.taskAttemptId(), RunningTasks.batch(task))
    // Called for failed and killed tasks too, which the plug-in's own events do not pair.
    task.addTaskCompletionListener[Unit](_ => ended(query, id))
    update(query)(_.started(id, batch, RunningTasks.nowMs))
  }

  def of(query: Option[String]): TaskPace =
    query.flatMap(one => Option(paces.get(one))).getOrElse(TaskPace())

  private def ended(query: String, task: Long): Unit = {
    update(query)(_.ended(task, RunningTasks.nowMs))
    if (of(Some(query)).running.isEmpty) idle(query)
  }

  private def update(query: String)(change: TaskPace => TaskPace): Unit = {
    paces.compute(query, (_, pace) => change(Option(pace).getOrElse(TaskPace())))
  }
}

object RunningTasks {

  /** The local property in which Spark has the id of the query that a thread or task works for. */
  val QueryProperty = "sql.streaming.queryId"

  def nowMs: Long = System.nanoTime() / 1000000

  /** The query that a task works for. */
  def query(task: TaskContext): Option[String] =
    Option(task.getLocalProperty(QueryProperty))

  private def batch(task: TaskContext): Option[String] =
    Option(task.getLocalProperty("streaming.sql.batchId"))
}
