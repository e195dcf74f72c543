package tidelog.spark.faults

import java.net.URI
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  ChecksumFs,
  DelegateToFileSystem,
  FileStatus,
  FsConstants,
  Path,
  RawLocalFileSystem
}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local file system for `file:`, checksums included, that starts no processes.
  *
  * Without its native library Hadoop runs `chmod` for every file that is created and `readlink` for
  * both names of every rename: a third of the processor time of a query with small batches. This
  * one asks the JVM, and leaves to Hadoop what is a link.
  */
final class LightLocalFs(uri: URI, conf: Configuration)
    extends ChecksumFs(new LightLocalFs.Unchecked(conf))

object LightLocalFs {

  /** The Hadoop setting whose value is the name of this class. */
  val Key = "fs.AbstractFileSystem.file.impl"

  def configuration(): Configuration = {
    val conf = new Configuration
    conf.set(Key, classOf[LightLocalFs].getName)
    conf
  }

  private final class Unchecked(conf: Configuration)
      extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new Raw, conf, "file", false) {
    override def getUriDefaultPort: Int = -1
    override def isValidName(src: String): Boolean = true
  }

  private final class Raw extends RawLocalFileSystem {
    override def setPermission(path: Path, permission: FsPermission): Unit = {
      val bits = PosixFilePermissions.fromString(new FsPermission(permission.toShort).toString.take(9))
      Files.setPosixFilePermissions(pathToFile(path).toPath, bits)
    }

    override def getFileLinkStatus(path: Path): FileStatus =
      if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path)
      else getFileStatus(path)
  }
}
