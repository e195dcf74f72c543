package tidelog.benchmark

import java.io.FileNotFoundException
import java.net.URI
import java.nio.file.{Files, Paths, Path => LocalPath}
import java.nio.file.{DirectoryNotEmptyException, NoSuchFileException, NotDirectoryException}
import java.nio.file.StandardCopyOption.{ATOMIC_MOVE, REPLACE_EXISTING}
import java.util.{Comparator, UUID}

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** Local files reached by requests that are counted and behave like S3.
  *
  * `counted:///a/b` is the local file `/a/b`. A file appears whole when its stream is closed: one
  * PUT, conditional in the request itself unless it may overwrite. A rename is two requests, a copy
  * and a delete; a listing is one per 1000 names; a directory is a PUT. No probes are added: what S3A
  * asks before it creates or deletes is not counted.
  *
  * Invariants: every method that stands for a request counts it and waits its latency before it
  * touches a file, then for its bytes, which a file that appears has behind it; nothing starts a
  * process (Hadoop's local file system runs chmod).
  */
class CountedFileSystem extends FileSystem {
  import CountedFileSystem._

  private var profile = LatencyProfile(0, 0, 0, 0)
  private var working = new Path("counted:///")

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    setConf(conf)
    profile = LatencyProfile.of(conf)
  }

  override def getScheme: String = Scheme

  override def getUri: URI = Root

  override def hasPathCapability(path: Path, capability: String): Boolean =
    capability == FS_OPTION_CREATE_CONDITIONAL_OVERWRITE ||
      super.hasPathCapability(path, capability)

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    new FSDataOutputStream(new PutOnClose(put(path, _, overwrite)), null)

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    val file = local(path)
    request("get", path)
    val bytes = missing(path)(Files.readAllBytes(file))
    download(path, bytes.length.toLong)
    new FSDataInputStream(new BytesInput(bytes))
  }

  override def rename(from: Path, to: Path): Boolean = {
    request("copy", to, latencyOf = "put")
    request("delete", from)
    val target = local(to)
    val may = Files.exists(local(from)) && !Files.exists(target)
    if (may) Files.move(local(from), target, ATOMIC_MOVE)
    may
  }

  override def delete(path: Path, recursive: Boolean): Boolean = {
    request("delete", path)
    val file = local(path)
    try {
      if (recursive && Files.isDirectory(file)) deleteTree(file) else Files.deleteIfExists(file)
    } catch {
      case e: DirectoryNotEmptyException => throw new PathIsNotEmptyDirectoryException(e.getFile)
    }
  }

  override def listStatus(path: Path): Array[FileStatus] = {
    request("list", path)
    val file = local(path)
    try {
      val found = Using.resource(Files.list(file)) { entries =>
        entries.iterator.asScala
          .filterNot(entry => entry.getFileName.toString.startsWith(Unfinished))
          .flatMap(entry => statusOf(new Path(path, entry.getFileName.toString)))
          .toArray
      }
      (1 to (found.length - 1) / ListPage).foreach(_ => request("list", path))
      found
    } catch {
      case _: NoSuchFileException => throw new FileNotFoundException(path.toString)
      case _: NotDirectoryException => statusOf(path).toArray
    }
  }

  override def getFileStatus(path: Path): FileStatus = {
    request("head", path)
    statusOf(path).getOrElse(throw new FileNotFoundException(path.toString))
  }

  override def mkdirs(path: Path, permission: FsPermission): Boolean = {
    request("mkdirs", path, latencyOf = "put")
    Files.createDirectories(local(path))
    true
  }

  /** As S3A does it: a look at the target, then one PUT. */
  override def copyFromLocalFile(move: Boolean, overwrite: Boolean, from: Path, to: Path): Unit = {
    request("head", to)
    put(to, Files.readAllBytes(Paths.get(from.toUri.getPath)), overwrite)
    if (move) Files.delete(Paths.get(from.toUri.getPath))
  }

  /** As S3A does it: the status, then one GET. */
  override def copyToLocalFile(delete: Boolean, from: Path, to: Path, raw: Boolean): Unit = {
    request("head", from)
    request("get", from)
    val target = Paths.get(to.toUri.getPath)
    missing(from)(Files.copy(local(from), target, REPLACE_EXISTING))
    download(from, Files.size(target))
    if (delete) this.delete(from, false)
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    throw new UnsupportedOperationException(s"$path: objects cannot be appended to")

  override def setWorkingDirectory(path: Path): Unit = working = path

  override def getWorkingDirectory: Path = working

  private def put(path: Path, bytes: Array[Byte], overwrite: Boolean): Unit = {
    Gate.pass(path)
    request("put", path)
    Requests.addBytes("put", path, bytes.length.toLong)
    Network.transfer(bytes.length.toLong, profile)
    val target = local(path)
    Files.createDirectories(target.getParent)
    val unfinished = target.resolveSibling(Unfinished + UUID.randomUUID)
    Files.write(unfinished, bytes)
    if (overwrite) Files.move(unfinished, target, ATOMIC_MOVE)
    else putIfAbsent(unfinished, target, path)
    if (target.getParent.getFileName.toString == "commits") {
      target.getFileName.toString.toLongOption.foreach(Requests.committed)
    }
  }

  private def putIfAbsent(unfinished: LocalPath, target: LocalPath, path: Path): Unit =
    try Files.createLink(target, unfinished)
    catch {
      case _: java.nio.file.FileAlreadyExistsException =>
        throw new FileAlreadyExistsException(s"$path: 412 Precondition Failed")
    } finally Files.delete(unfinished)

  private def download(path: Path, bytes: Long): Unit = {
    Requests.addBytes("get", path, bytes)
    Network.transfer(bytes, profile)
  }

  private def request(kind: String, path: Path): Unit = request(kind, path, latencyOf = kind)

  private def request(kind: String, path: Path, latencyOf: String): Unit = {
    Requests.add(kind, path)
    Network.await(latencyOf, profile)
  }

  private def statusOf(path: Path): Option[FileStatus] = {
    val file = local(path)
    try {
      val found = Files.readAttributes(file, classOf[java.nio.file.attribute.BasicFileAttributes])
      val at = makeQualified(path)
      val changed = found.lastModifiedTime.toMillis
      Some(new FileStatus(found.size, found.isDirectory, 1, BlockBytes, changed, at))
    } catch { case _: NoSuchFileException => None }
  }
}

object CountedFileSystem {
  val Scheme = "counted"
  private val Root = URI.create("counted:///")
  private val Unfinished = ".~"
  private val BlockBytes = 32L << 20
  private val ListPage = 1000

  private def local(path: Path): LocalPath = Paths.get(path.toUri.getPath)

  private def missing[T](path: Path)(read: => T): T =
    try read
    catch { case _: NoSuchFileException => throw new FileNotFoundException(path.toString) }

  private def deleteTree(file: LocalPath): Boolean = {
    Using.resource(Files.walk(file)) { all =>
      all.sorted(Comparator.reverseOrder[LocalPath]).forEach(one => Files.deleteIfExists(one))
    }
    true
  }
}
