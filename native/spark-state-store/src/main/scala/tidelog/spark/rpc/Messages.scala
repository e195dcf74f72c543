package tidelog.spark.rpc

import tidelog.spark.format.{ChangelogName, IndexEntry}

/** What executors and the driver tell each other; `root` is a CheckpointRoot's uri.
  *
  * Invariant: Spark carries plug-in messages from executors to the driver only, so the driver
  * speaks in the answers to `Poll`.
  */
sealed trait Message extends Serializable {
  def executor: String
}

/** A segment is stored; `complete` are the changelogs all of whose pieces are durable by now,
  * `newest` is the highest state version of which the segment holds a piece.
  */
final case class SegmentDurable(
    executor: String,
    root: String,
    segment: String,
    bytes: Long,
    newest: Long,
    complete: Vector[IndexEntry])
    extends Message

/** These changelogs will never be durable: the upload's retries are used up. */
final case class UploadFailed(
    executor: String,
    root: String,
    names: Vector[ChangelogName],
    reason: String)
    extends Message

/** Spark's maintenance has deleted these changelogs. */
final case class Deleted(executor: String, root: String, names: Vector[ChangelogName])
    extends Message

/** Sent all the time; `acknowledged` names, per checkpoint, the newest barrier before which
  * everything handed to this executor is durable or reported as failed.
  */
final case class Poll(executor: String, acknowledged: Map[String, Long]) extends Message

/** The barriers that wait now, per checkpoint: bytes for them should leave at once. */
final case class Waiting(barriers: Map[String, Long]) extends Serializable

/** The answer to every other message. */
case object Received extends Serializable
