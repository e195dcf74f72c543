package tidelog.spark.rpc

import tidelog.spark.format.{ChangelogName, IndexEntry}
import tidelog.spark.snapshot.SnapshotStatus

/** What executors tell the driver; `root` is a CheckpointRoot's uri, `run` Spark's id of the run of
  * the query that the task belongs to.
  *
  * Invariant: Spark carries plug-in messages from executors to the driver only.
  */
sealed trait Message extends Serializable

/** Of one checkpoint and one run of its query. */
sealed trait OfRun extends Message {
  def root: String
  def run: String
}

/** A whole changelog, sent before its task ends: what the driver takes no executor can lose.
  *
  * @param snapshots those of its store
  */
final case class Part(
    root: String,
    run: String,
    name: ChangelogName,
    bytes: Array[Byte],
    snapshots: SnapshotStatus)
    extends OfRun

/** A changelog that its executor has stored itself, in these segments. */
final case class Stored(
    root: String,
    run: String,
    entry: IndexEntry,
    snapshots: SnapshotStatus,
    segments: Vector[StoredSegment])
    extends OfRun

/** How a segment was stored.
  *
  * @param elapsedNs from the first attempt to the end of the last, pauses between them included
  */
final case class StoredSegment(name: String, bytes: Long, elapsedNs: Long, attempts: Int)

/** Sent every few seconds; `figures` are the values of `ExecutorMetrics.Names`. */
final case class Figures(executor: String, figures: Map[String, Long]) extends Message

/** The driver's answers, made of the JDK's classes only: an executor decodes them with a class
  * loader from before `spark.jars` were fetched.
  */
object Answer {
  val Received: AnyRef = java.lang.Boolean.TRUE

  /** The driver holds as many parts as it may: the executor stores this one itself. */
  val Full: AnyRef = java.lang.Boolean.FALSE
}
