package tidelog.spark.storage

import java.io.IOException

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.internal.SQLConf

import CheckpointFileManager.CancellableFSDataOutputStream

/** Files on a file system whose rename is atomic (local, HDFS): exactly what Spark does there. */
private[storage] final class RenamedFiles(val manager: CheckpointFileManager) extends AtomicFiles {

  override def exists(path: Path): Boolean = manager.exists(path)

  override def prepare(directory: Path): Unit = manager.mkdirs(directory)

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    manager.createAtomic(path, overwrite)

  override def write(path: Path, bytes: Array[Byte], overwrite: Boolean): Unit =
    try super.write(path, bytes, overwrite)
    catch {
      case failure: IOException =>
        removeTemporaryFiles(path, failure)
        throw failure
    }

  /** Spark leaves the temporary file when the rename fails. */
  private def removeTemporaryFiles(path: Path, failure: IOException): Unit =
    try {
      manager
        .list(path.getParent)
        .map(_.getPath)
        .filter(file => file.getName.startsWith(s".${path.getName}.") && isTemporary(file))
        .foreach(manager.delete)
    } catch { case NonFatal(error) => failure.addSuppressed(error) }

  private def isTemporary(file: Path): Boolean = file.getName.endsWith(".tmp")

  override def read(path: Path): Array[Byte] = {
    val in = manager.open(path)
    try in.readAllBytes()
    finally in.close()
  }

  override def read(path: Path, offset: Long, length: Int): Array[Byte] = {
    val bytes = new Array[Byte](length)
    val in = manager.open(path)
    try in.readFully(offset, bytes)
    finally in.close()
    bytes
  }
}

private[storage] object RenamedFiles {
  def open(path: Path, conf: Configuration): RenamedFiles = {
    // The factory would come back to the plug-in's own manager while its class is configured.
    val own = new Configuration(conf)
    own.unset(SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key)
    new RenamedFiles(CheckpointFileManager.create(path, own))
  }
}
