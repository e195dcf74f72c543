package tidelog.spark.executor

import tidelog.spark.format.ChangelogName
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.Deleted

/** Changelogs that Spark has deleted and the driver does not know yet.
  *
  * Losing some is harmless: Spark lists them again and deletes them again.
  */
final class Tombstones {
  private var waiting = Map.empty[(CheckpointRoot, String), Vector[ChangelogName]]

  def add(root: CheckpointRoot, run: String, name: ChangelogName): Unit = synchronized {
    val key = (root, run)
    waiting = waiting.updated(key, waiting.getOrElse(key, Vector.empty) :+ name)
  }

  def take(): Vector[Deleted] = synchronized {
    val taken = waiting
    waiting = Map.empty
    taken.map { case ((root, run), names) => Deleted(root.uri, run, names) }.toVector
  }
}
