package tidelog.spark.layout

import org.apache.hadoop.fs.Path

import tidelog.spark.format.ChangelogName

/** What a path of a checkpoint stands for; everything the plug-in does not handle is `Other`.
  *
  * Invariant: a function of the path's text alone. `root` is the checkpoint's directory, spelled as
  * in the path; `CheckpointRoot` makes spellings comparable.
  */
sealed trait PathKind

object PathKind {

  /** A changelog of a state store, with checkpoint id: it lives in segments. */
  final case class Changelog(root: Path, name: ChangelogName) extends PathKind

  /** The checksum file Spark may write for a changelog: blocks carry their own checksum. */
  final case class ChangelogChecksum(root: Path, name: ChangelogName) extends PathKind

  /** The file whose appearance commits a batch. */
  final case class Commit(root: Path, batch: Long) extends PathKind

  /** The archive of a state store's snapshot, with checkpoint id: Spark's own file. */
  final case class Snapshot(version: Long) extends PathKind

  case object Other extends PathKind

  /** The directory of one state store: its changelogs appear in its listing. */
  final case class StoreDirectory(root: Path, directory: String)

  private val ChecksumSuffix = ".crc"

  def of(path: Path): PathKind = {
    if (path.getName.endsWith(".changelog")) changelog(path).getOrElse(Other)
    else if (path.getName.endsWith(".changelog" + ChecksumSuffix)) checksum(path).getOrElse(Other)
    else if (path.getName.endsWith(".zip")) snapshot(path).getOrElse(Other)
    else commit(path).getOrElse(Other)
  }

  /** The state store whose directory this is, if any. */
  def storeDirectory(path: Path): Option[StoreDirectory] =
    below("state", path, depth = 2)
      .orElse(below("state", path, depth = 3))
      .filter { case (_, relative) => StorePattern.matches(relative) }
      .filterNot { case (_, relative) => TableFolders.exists(name => relative.endsWith(s"/$name")) }
      .map { case (root, relative) => StoreDirectory(root, relative) }

  /** Whether the files of snapshots may lie here, below a store's directory. */
  def isTableFolder(path: Path): Boolean =
    TableFolders.contains(path.getName) && storeDirectory(path.getParent).isDefined

  private val TableFolders = Seq("SSTs", "logs")

  private val SnapshotName = "([0-9]+)_.+\\.zip".r

  private val StorePattern = "[0-9]+/[0-9]+(/[^/]+)?".r

  private def changelog(path: Path): Option[Changelog] =
    below("state", path, depth = 3)
      .orElse(below("state", path, depth = 4))
      .flatMap { case (root, relative) => ChangelogName.parse(relative).map(Changelog(root, _)) }

  private def checksum(path: Path): Option[PathKind] = {
    val main = new Path(path.getParent, path.getName.stripSuffix(ChecksumSuffix))
    changelog(main).map { case Changelog(root, name) => ChangelogChecksum(root, name) }
  }

  private def snapshot(path: Path): Option[Snapshot] = path.getName match {
    case SnapshotName(version) if storeDirectory(path.getParent).isDefined =>
      version.toLongOption.map(Snapshot(_))
    case _ => None
  }

  private def commit(path: Path): Option[PathKind] =
    below("commits", path, depth = 1).flatMap { case (root, name) =>
      name.toLongOption.filter(_ >= 0).map(Commit(root, _))
    }

  /** The path's last `depth` names, and the directory that holds the folder `name` above them. */
  private def below(name: String, path: Path, depth: Int): Option[(Path, String)] = {
    var names = List.empty[String]
    var at = path
    while (names.length < depth && at != null && at.getParent != null) {
      names = at.getName :: names
      at = at.getParent
    }
    val found = at != null && at.getName == name && at.getParent != null
    if (found && names.length == depth) Some((at.getParent, names.mkString("/"))) else None
  }
}
