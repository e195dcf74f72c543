package tidelog.spark.faults

import java.io.{ByteArrayOutputStream, IOException}
import java.net.URI
import java.nio.file.{FileAlreadyExistsException => Exists, Files, StandardCopyOption}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FileAlreadyExistsException,
  FileStatus,
  FSDataInputStream,
  FSDataOutputStream,
  Path,
  RawLocalFileSystem
}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** Local files, reached by another scheme, whose operations fail, wait or lose data as the rules in
  * the directory `fs.faulty.control` say.
  *
  * Invariants: a file appears whole, when its stream is closed, and a create without overwrite is
  * then refused if there is one, as on an object store; what exists beside the files of the user is
  * below the control directory only.
  */
class FaultyFileSystem extends RawLocalFileSystem {
  private var uri: URI = _
  private var faults: Faults = _
  private var staging: java.nio.file.Path = _

  override def initialize(name: URI, conf: Configuration): Unit = {
    uri = URI.create(s"${name.getScheme}:///")
    super.initialize(name, conf)
    faults = Faults.of(conf.get(Faults.ControlKey))
    staging = java.nio.file.Paths.get(conf.get(Faults.ControlKey), "staging")
    Files.createDirectories(staging)
    setWorkingDirectory(new Path(uri.toString))
  }

  // The parent's constructor asks, before there is a name.
  override def getUri: URI = Option(uri).getOrElse(super.getUri)
  override def getScheme: String = getUri.getScheme

  override def hasPathCapability(path: Path, capability: String): Boolean =
    capability == FS_OPTION_CREATE_CONDITIONAL_OVERWRITE ||
      super.hasPathCapability(path, capability)

  // The parent starts a process for every call; nothing here looks at permissions.
  override def setPermission(path: Path, permission: FsPermission): Unit = ()

  override def create(
      path: Path,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    new FSDataOutputStream(new Put(path, overwrite), null)

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    new FSDataOutputStream(new Put(path, overwrite), null)

  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    around("open", path)(super.open(path, bufferSize))

  override def rename(from: Path, to: Path): Boolean =
    around("rename", to)(super.rename(from, to))

  override def delete(path: Path, recursive: Boolean): Boolean =
    around("delete", path)(super.delete(path, recursive))

  override def listStatus(path: Path): Array[FileStatus] =
    around("list", path)(super.listStatus(path))

  private def around[T](op: String, path: Path)(work: => T): T =
    faults.around(op, path.toUri.getPath)(work)

  private final class Put(path: Path, overwrite: Boolean) extends ByteArrayOutputStream {
    private var closed = false

    override def close(): Unit =
      if (!closed) {
        closed = true
        around("put", path)(store(faults.kept(path.toUri.getPath, toByteArray)))
      }

    private def store(bytes: Array[Byte]): Unit = {
      val target = pathToFile(path).toPath
      Files.createDirectories(target.getParent)
      val staged = Files.write(staging.resolve(UUID.randomUUID.toString), bytes)
      if (overwrite) Files.move(staged, target, StandardCopyOption.ATOMIC_MOVE)
      else {
        try Files.createLink(target, staged)
        catch { case _: Exists => throw refused }
        finally Files.delete(staged)
      }
    }

    private def refused: IOException = new FileAlreadyExistsException(s"$path exists")
  }
}
