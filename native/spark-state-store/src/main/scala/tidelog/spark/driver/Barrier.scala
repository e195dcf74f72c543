package tidelog.spark.driver

/** What is known about the checkpoint ids a commit waits for.
  *
  * @param awaited ids the commit names
  * @param durable ids whose changelog is durable
  * @param failed ids whose upload has failed for good, with the reason
  * @param underWay ids whose changelog the driver is uploading
  * @param waitedMs how long the barrier has waited
  */
final case class BarrierFacts(
    awaited: Set[String],
    durable: Set[String],
    failed: Map[String, String],
    underWay: Set[String],
    waitedMs: Long)

sealed trait BarrierDecision

object BarrierDecision {
  case object Publish extends BarrierDecision
  case object Wait extends BarrierDecision

  /** The log does not have these ids: they are real files, old ones, or lost. */
  final case class LookElsewhere(missing: Set[String]) extends BarrierDecision
  final case class Fail(reason: String) extends BarrierDecision
}

/** Whether a batch may be committed; pure.
  *
  * Invariant: `Publish` only if every awaited id is durable.
  */
object Barrier {
  import BarrierDecision._

  def decide(facts: BarrierFacts, timeoutMs: Long): BarrierDecision = {
    val missing = facts.awaited -- facts.durable
    val lost = missing.flatMap(facts.failed.get)
    val unknown = missing -- facts.underWay
    if (missing.isEmpty) Publish
    else if (lost.nonEmpty) Fail(s"an upload has failed: ${lost.head}")
    else if (unknown.nonEmpty) LookElsewhere(unknown)
    else if (facts.waitedMs >= timeoutMs) {
      Fail(
        s"${missing.size} of ${facts.awaited.size} changelogs are not durable after " +
          s"$timeoutMs ms (spark.tidelog.barrier.timeout): the store is slow or does not answer")
    } else Wait
  }
}
