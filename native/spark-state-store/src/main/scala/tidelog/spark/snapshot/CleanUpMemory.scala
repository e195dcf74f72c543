package tidelog.spark.snapshot

import org.apache.hadoop.fs.{FileStatus, Path}

/** What the clean-up of one open state store knows of its directory, so that Spark's maintenance
  * does not list it every minute, at the price of a stored object; thread-safe.
  *
  * Invariants: a directory is known as the last listing found it, with the snapshots stored here
  * since and without the files deleted here. That is all of it while the store is open here alone,
  * but for what attempts that failed have left; so it is listed again after an hour, and after the
  * store was loaded from the checkpoint, because another executor may have had it meanwhile. Of
  * what is missing here the clean-up deletes nothing: it keeps the newest snapshot that it knows of
  * below the retained versions, and the files of that one.
  *
  * @param nowMs a clock that never goes back, in milliseconds
  */
final class CleanUpMemory(nowMs: () => Long) {
  private var listed = Map.empty[Path, Listed]
  private var searchedAtMs = Map.empty[Path, Long]

  /** The files of the store's directory.
    *
    * @param listing asks the file system
    */
  def list(directory: Path)(listing: => Array[FileStatus]): Array[FileStatus] = synchronized {
    if (fresh(directory).isEmpty) {
      val files = listing.map(status => status.getPath.getName -> status).toMap
      listed = listed.updated(directory, Listed(nowMs(), files))
    }
    listed(directory).files.values.toArray
  }

  /** Whether the directory is known to have files. */
  def knows(directory: Path): Boolean = synchronized(fresh(directory).exists(_.files.nonEmpty))

  /** Whether a folder below the directory was searched within the hour for files that no snapshot
    * names; if it was not, it is now.
    */
  def searched(folder: Path): Boolean = synchronized {
    val before = searchedAtMs.get(folder).exists(isFresh)
    if (!before) searchedAtMs = searchedAtMs.updated(folder, nowMs())
    before
  }

  def stored(file: Path): Unit =
    change(file)(_.updated(file.getName, new FileStatus(0, false, 1, 1, 0, file)))

  def deleted(file: Path): Unit = change(file)(_.removed(file.getName))

  /** The store is loaded from the checkpoint. */
  def forget(): Unit = synchronized { listed = Map.empty }

  private def change(file: Path)(files: Map[String, FileStatus] => Map[String, FileStatus]): Unit =
    synchronized {
      listed = listed.updatedWith(file.getParent)(_.map(known => known.copy(files = files(known.files))))
    }

  private def fresh(directory: Path): Option[Listed] =
    listed.get(directory).filter(known => isFresh(known.atMs))

  private def isFresh(atMs: Long): Boolean = nowMs() - atMs < CleanUpMemory.TrustedMs
}

object CleanUpMemory {
  private val TrustedMs = 60L * 60 * 1000
}

private final case class Listed(atMs: Long, files: Map[String, FileStatus])
