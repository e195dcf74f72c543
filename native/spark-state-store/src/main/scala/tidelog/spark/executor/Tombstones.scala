package tidelog.spark.executor

import tidelog.spark.format.ChangelogName
import tidelog.spark.layout.CheckpointRoot

/** Changelogs that Spark has deleted and the driver does not know yet.
  *
  * Losing some is harmless: Spark lists them again and deletes them again.
  */
final class Tombstones {
  private var waiting = Map.empty[CheckpointRoot, Vector[ChangelogName]]

  def add(root: CheckpointRoot, name: ChangelogName): Unit = synchronized {
    waiting = waiting.updated(root, waiting.getOrElse(root, Vector.empty) :+ name)
  }

  /** Another run writes the checkpoint: what was deleted before may be there again. */
  def forget(root: CheckpointRoot): Unit = synchronized(waiting -= root)

  def take(): Map[CheckpointRoot, Vector[ChangelogName]] = synchronized {
    val taken = waiting
    waiting = Map.empty
    taken
  }
}
