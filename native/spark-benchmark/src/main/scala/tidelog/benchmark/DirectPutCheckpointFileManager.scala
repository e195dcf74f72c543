package tidelog.benchmark

import java.io.ByteArrayOutputStream

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing._

import CheckpointFileManager.CancellableFSDataOutputStream

/** The best that stock Spark can have on an object store: one PUT per atomic file, no rename.
  *
  * Invariant: a file appears when its stream is closed and never after `cancel`; without
  * `overwrite` the PUT itself is conditional, so no request asks before.
  */
class DirectPutCheckpointFileManager(path: Path, conf: Configuration)
    extends FileSystemBasedCheckpointFileManager(path, conf) {

  override def createAtomic(file: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    new DirectPut(put(file, _, overwrite))

  private def put(file: Path, bytes: Array[Byte], overwrite: Boolean): Unit = {
    val stream = fs.create(file, overwrite)
    stream.write(bytes)
    stream.close()
  }
}

private final class DirectPut(put: Array[Byte] => Unit)
    extends CancellableFSDataOutputStream(new ByteArrayOutputStream(1024)) {
  private var ended = false

  override def close(): Unit = if (!ended) {
    ended = true
    put(underlyingStream.asInstanceOf[ByteArrayOutputStream].toByteArray)
  }

  override def cancel(): Unit = ended = true
}
