package tidelog.spark.rpc

import scala.jdk.CollectionConverters._

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

/** The driver's answers, made of the JDK's classes only: an executor decodes them with a class
  * loader from before `spark.jars` were fetched.
  */
object Answer {

  /** The answer to a `Poll`: the barriers that wait now, per checkpoint. Bytes for them should
    * leave at once.
    */
  def waiting(barriers: Map[String, Long]): AnyRef = {
    val answer = new java.util.HashMap[String, java.lang.Long]
    barriers.foreach { case (root, ticket) => answer.put(root, ticket) }
    answer
  }

  /** The barriers in an answer to a `Poll`. */
  def barriers(answer: AnyRef): Map[String, Long] = answer match {
    case waiting: java.util.Map[_, _] =>
      waiting.asScala.map { case (root, ticket) =>
        root.asInstanceOf[String] -> ticket.asInstanceOf[java.lang.Long].longValue
      }.toMap
    case other => throw new IllegalStateException(s"the driver answered $other to a poll")
  }

  /** The answer to every other message. */
  val Received: AnyRef = java.lang.Boolean.TRUE
}
