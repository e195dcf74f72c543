package tidelog.spark.layout

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import tidelog.spark.format.ObjectNames

/** A checkpoint's directory: the key under which driver and executors speak of it.
  *
  * Invariant: two spellings of one directory are equal; all object paths are built here.
  */
final case class CheckpointRoot(uri: String) {
  private def path = new Path(uri)
  private def log = new Path(path, ObjectNames.LogDirectory)

  def segments: Path = new Path(log, "segments")

  /** The object that a segment is or lies in. */
  def segment(name: String): Path =
    new Path(if (ObjectNames.isInCommit(name)) path else segments, name)
  def index: Path = new Path(log, "index")
  def rollUp(batch: Long): Path = new Path(index, ObjectNames.rollUp(batch))
  def commits: Path = new Path(path, "commits")
  def state: Path = new Path(path, "state")
  def commit(batch: Long): Path = new Path(commits, batch.toString)

  override def toString: String = uri
}

object CheckpointRoot {
  def of(path: Path, conf: Configuration): CheckpointRoot =
    CheckpointRoot(path.getFileSystem(conf).makeQualified(path).toString)
}
