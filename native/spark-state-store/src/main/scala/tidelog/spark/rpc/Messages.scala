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

/** How a segment was stored.
  *
  * @param elapsedNs from the first attempt to the end of the last
  * @param snapshots changelogs it completed whose version comes with a snapshot
  * @param snapshotsPutOff those whose snapshot Spark alone would have taken with that version
  */
final case class Upload(elapsedNs: Long, attempts: Int, snapshots: Int, snapshotsPutOff: Int)

/** A segment is stored; `complete` are the changelogs all of whose pieces are durable by now,
  * `newest` is the highest state version of which the segment holds a piece.
  */
final case class SegmentDurable(
    executor: String,
    root: String,
    segment: String,
    bytes: Long,
    newest: Long,
    complete: Vector[IndexEntry],
    upload: Upload)
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
  * everything handed to this executor is durable or reported as failed. `figures` are the values
  * of `ExecutorMetrics.Names`, or empty: they are sent every few seconds only.
  */
final case class Poll(
    executor: String,
    acknowledged: Map[String, Long],
    figures: Map[String, Long] = Map.empty)
    extends Message

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
