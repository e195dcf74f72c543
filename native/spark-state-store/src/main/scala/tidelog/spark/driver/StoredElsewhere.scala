package tidelog.spark.driver

import java.io.FileNotFoundException

import org.apache.hadoop.fs.Path

import tidelog.spark.index.{IndexFiles, NamedId}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.storage.AtomicFiles

/** Finds ids that are durable as Spark's own files: snapshots without a changelog (an offline
  * repartition), changelogs written without the plug-in; and ids the previous commit named already.
  */
final class StoredElsewhere(root: CheckpointRoot, files: AtomicFiles) extends Elsewhere {
  private val stored = new IndexFiles(root, files)

  override def find(batch: Long, ids: Vector[NamedId]): Set[String] = {
    val before = stored.commit(batch - 1).fold(Set.empty[String])(_.ids.map(_.id).toSet)
    val (old, other) = ids.partition(named => before(named.id))
    val real = other.groupBy(named => (named.operator, named.partition)).flatMap {
      case ((operator, partition), named) =>
        val present = names(new Path(root.state, s"$operator/$partition"))
        named.filter(one => suffixes.exists(end => present(s"${batch + 1}_${one.id}$end")))
    }
    (old ++ real).map(_.id).toSet
  }

  private val suffixes = Seq(".zip", ".changelog")

  /** Names of the files of a partition's stores. */
  private def names(partition: Path): Set[String] =
    list(partition).flatMap { case (path, isDirectory) =>
      if (isDirectory) list(path).map(_._1.getName) else Seq(path.getName)
    }.toSet

  private def list(directory: Path): Seq[(Path, Boolean)] =
    try files.manager.list(directory).toSeq.map(status => (status.getPath, status.isDirectory))
    catch { case _: FileNotFoundException => Nil }
}
