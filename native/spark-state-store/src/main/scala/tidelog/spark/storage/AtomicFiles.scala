package tidelog.spark.storage

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

import CheckpointFileManager.CancellableFSDataOutputStream

/** Files of a checkpoint that appear whole or not at all.
  *
  * Invariants, whatever the file system: a file is visible only after its stream was closed without
  * an error; without `overwrite` one of any number of concurrent writers succeeds and the others
  * get Hadoop's `FileAlreadyExistsException`; a missing file is a `FileNotFoundException`. All
  * other errors are those of the file system, unchanged, because Spark decides by their types.
  */
trait AtomicFiles {

  /** A stream whose `close` makes the file appear; after `cancel` nothing does.
    *
    * The directory must exist, except on an object store, which has none.
    */
  def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream

  /** Whether the file is there; on an object store it may be said of the successor of a numbered
    * file that this object has written that it is not, which its conditional create then proves.
    */
  def exists(path: Path): Boolean

  /** Makes it possible to create files in a directory; object stores need nothing for that. */
  def prepare(directory: Path): Unit

  /** Spark's own manager, for all that is not a whole file: listing, deletion, directories. */
  def manager: CheckpointFileManager

  /** The whole file. */
  def read(path: Path): Array[Byte]

  /** `length` bytes from `offset`; an `EOFException` if the file ends before. */
  def read(path: Path, offset: Long, length: Int): Array[Byte]

  /** The whole file at once. */
  def write(path: Path, bytes: Array[Byte], overwrite: Boolean): Unit = {
    val stream = createAtomic(path, overwrite)
    try {
      stream.write(bytes)
      stream.close()
    } finally stream.cancel() // does nothing after a close
  }
}

object AtomicFiles {

  /** Schemes (Hadoop configuration, comma separated) whose files are written by one PUT. */
  val PutSchemesKey = "spark.tidelog.put.schemes"
  private val DefaultPutSchemes = "s3a"

  /** The files of the file system that `path` lies on. */
  def open(path: Path, conf: Configuration): AtomicFiles = {
    val fileSystem = path.getFileSystem(conf)
    val schemes = conf.get(PutSchemesKey, DefaultPutSchemes).split(',').map(_.trim.toLowerCase)
    if (schemes.contains(fileSystem.getUri.getScheme)) PutFiles.open(path, fileSystem, conf)
    else RenamedFiles.open(path, conf)
  }
}
