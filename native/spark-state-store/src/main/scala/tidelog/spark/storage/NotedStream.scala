package tidelog.spark.storage

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** The stream of a file; `stored` runs once, when the file is there. */
final class NotedStream(stream: CancellableFSDataOutputStream, stored: () => Unit)
    extends CancellableFSDataOutputStream(stream) {
  private var ended = false

  override def close(): Unit = synchronized {
    super.close()
    if (!ended) stored()
    ended = true
  }

  override def cancel(): Unit = synchronized {
    ended = true
    stream.cancel()
  }
}
