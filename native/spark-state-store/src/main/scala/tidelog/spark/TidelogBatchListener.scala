package tidelog.spark

import scala.collection.concurrent.TrieMap

import org.apache.spark.internal.Logging
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener.{
  QueryProgressEvent,
  QueryStartedEvent,
  QueryTerminatedEvent
}

import tidelog.spark.driver.DriverSide

/** Logs one line of JSON for every committed batch, at level INFO; set it in
  * `spark.sql.streaming.streamingQueryListeners`. docs/reference/spark-plugin.md has the line's fields.
  */
class TidelogBatchListener extends StreamingQueryListener with Logging {
  private val logged = TrieMap.empty[java.util.UUID, Long]

  override def onQueryStarted(event: QueryStartedEvent): Unit = ()

  override def onQueryProgress(event: QueryProgressEvent): Unit = {
    val progress = event.progress
    // A query that waits for input tells of its last batch again.
    if (!logged.get(progress.runId).contains(progress.batchId)) {
      Option(TidelogBatchListener.report(progress.id.toString, progress.batchId)).foreach { line =>
        logged.put(progress.runId, progress.batchId)
        logInfo(line)
      }
    }
  }

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = logged.remove(event.runId)
}

object TidelogBatchListener {

  /** The JSON of a committed batch; null if this driver has not committed it with the plug-in, or
    * a thousand batches ago. Python asks for it by this name.
    */
  def report(query: String, batch: Long): String =
    DriverSide.current.flatMap(_.reports.find(query, batch)).orNull
}
