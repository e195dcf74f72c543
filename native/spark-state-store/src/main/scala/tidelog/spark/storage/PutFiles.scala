package tidelog.spark.storage

import java.io.{FileNotFoundException, InterruptedIOException, IOException}
import java.net.SocketTimeoutException
import java.util.Arrays

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.fs.Options.OpenFileOptions._
import org.apache.hadoop.util.functional.FutureIO
import org.apache.spark.sql.execution.streaming.checkpointing._

import CheckpointFileManager.CancellableFSDataOutputStream

/** Files on an object store: one PUT each, never a rename, which there is a copy and not atomic.
  *
  * Invariants: no request is made before `close`; a create is conditional in the request itself
  * (`If-None-Match: *`), so there is no moment between a check and the write.
  */
private[storage] final class PutFiles(
    fileSystem: FileSystem,
    val manager: CheckpointFileManager)
    extends AtomicFiles {

  import PutFiles._

  // Spark asks for `offsets/N` and `commits/N` before it creates them, which is a request and a
  // round trip of every batch. Another driver's file would make the create fail, as it must.
  private val numbered = new NumberedFiles

  override def prepare(directory: Path): Unit = ()

  override def exists(path: Path): Boolean = !numbered.isNext(path) && manager.exists(path)

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    new PutStream(if (overwrite) put(path, _, conditional = false) else createNew(path, _))

  private def createNew(path: Path, bytes: Array[Byte]): Unit = {
    create(path, bytes)
    numbered.created(path)
  }

  /** Writes a file that must not exist.
    *
    * A failure does not say what happened: the answer to a PUT that succeeded can be lost, and the
    * client's own retry then finds our file in its way. So the store is asked, and equal bytes are
    * our own. Two drivers cannot write equal bytes where it matters: `commits/N` of a stateful
    * query holds random checkpoint ids, `offsets/N` the clock; a segment's name is its writer's.
    */
  private def create(path: Path, bytes: Array[Byte]): Unit = {
    @tailrec def attempt(retries: Int): Unit =
      failureOf(put(path, bytes, conditional = true)) match {
        case Some(failure) if !isOurs(path, bytes, failure) =>
          // A conflict: the store saw two requests at once and refused, so nobody has won yet.
          if (retries > 0 && isConflict(failure)) attempt(retries - 1) else throw failure
        case _ =>
      }
    attempt(ConflictRetries)
  }

  /** Whether the file holds these bytes; throws if it holds others, false if there is none. */
  private def isOurs(path: Path, bytes: Array[Byte], failure: IOException): Boolean = {
    val found =
      try Some(read(path))
      catch {
        case _: FileNotFoundException => None
        case NonFatal(unreadable) =>
          failure.addSuppressed(unreadable)
          throw failure
      }
    if (found.exists(!Arrays.equals(_, bytes))) throw taken(path, failure)
    found.isDefined
  }

  private def put(path: Path, bytes: Array[Byte], conditional: Boolean): Unit = {
    val builder: FSDataOutputStreamBuilder[_ <: FSDataOutputStream, _] = fileSystem.createFile(path)
    builder.overwrite(!conditional)
    builder.recursive()
    builder.opt(SkipProbes, "true")
    if (conditional) builder.opt(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, "true")
    val stream = builder.build()
    stream.write(bytes) // at most buffered: there is nothing to clean up if it fails
    stream.close()
  }

  override def read(path: Path): Array[Byte] = {
    val in = opened(path, FS_OPTION_OPENFILE_READ_POLICY_WHOLE_FILE, None)
    try in.readAllBytes()
    finally in.close()
  }

  override def read(path: Path, offset: Long, length: Int): Array[Byte] = {
    val bytes = new Array[Byte](length)
    // A declared length saves the request that would ask for it; nothing after it is read.
    val in = opened(path, FS_OPTION_OPENFILE_READ_POLICY_RANDOM, Some(offset + length))
    try in.readFully(offset, bytes)
    finally in.close()
    bytes
  }

  private def opened(path: Path, policy: String, length: Option[Long]): FSDataInputStream = {
    val builder = fileSystem.openFile(path)
    builder.opt(FS_OPTION_OPENFILE_READ_POLICY, policy)
    length.foreach(bytes => builder.opt(FS_OPTION_OPENFILE_LENGTH, bytes.toString))
    FutureIO.awaitFuture(builder.build())
  }
}

private[storage] object PutFiles {

  /** S3A's option for a create without a look at the path, its parents and its children before. */
  private val SkipProbes = "fs.s3a.create.performance"
  private val ConflictRetries = 3

  def open(path: Path, fileSystem: FileSystem, conf: Configuration): PutFiles = {
    val qualified = fileSystem.makeQualified(path)
    if (!fileSystem.hasPathCapability(qualified, FS_OPTION_CREATE_CONDITIONAL_OVERWRITE)) {
      throw new IOException(
        s"$qualified; expected a file system that can create a file only if it does not exist " +
          s"($FS_OPTION_CREATE_CONDITIONAL_OVERWRITE); found ${fileSystem.getClass.getName} " +
          "without it. Next: set fs.s3a.create.conditional.enabled to true and use hadoop-aws " +
          s"3.4.2 or later, or take the scheme out of ${AtomicFiles.PutSchemesKey} if its rename " +
          "is atomic (a retry is safe).")
    }
    // Not Spark's factory: it prefers FileContext, which starts a client of its own, with
    // connections and threads, for every manager, and never closes it.
    new PutFiles(fileSystem, new FileSystemBasedCheckpointFileManager(path, conf))
  }

  private def failureOf(request: => Unit): Option[IOException] =
    try {
      request
      None
    } catch {
      case e: InterruptedIOException if !e.isInstanceOf[SocketTimeoutException] =>
        throw e // the query is being stopped
      case e: IOException => Some(e)
    }

  /** S3's answer 409 to a conditional write; S3A has no exception of its own for it. */
  private def isConflict(e: IOException): Boolean =
    String.valueOf(e.getMessage).contains("ConditionalRequestConflict")

  private def taken(path: Path, cause: IOException): IOException = {
    val e = new FileAlreadyExistsException(
      s"$path; expected no such file; found one with other content: another writer was first. " +
        "Next: end all but one of the queries on this checkpoint (a retry is not safe).")
    e.initCause(cause)
    e
  }
}
