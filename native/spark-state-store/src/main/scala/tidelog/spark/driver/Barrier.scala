package tidelog.spark.driver

/** What is known about the checkpoint ids a commit waits for.
  *
  * @param awaited ids the commit names
  * @param durable ids whose changelog is durable
  * @param failed ids whose upload has failed for good, with the reason
  * @param executors executors that are alive
  * @param acknowledged those of them for which nothing from before this barrier is under way
  * @param waitedMs how long the barrier has waited
  */
final case class BarrierFacts(
    awaited: Set[String],
    durable: Set[String],
    failed: Map[String, String],
    executors: Set[String],
    acknowledged: Set[String],
    waitedMs: Long)

sealed trait BarrierDecision

object BarrierDecision {
  case object Publish extends BarrierDecision
  case object Wait extends BarrierDecision

  /** No executor has these ids on its way: they are real files, old ones, or lost. */
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
    if (missing.isEmpty) Publish
    else if (lost.nonEmpty) Fail(s"an upload has failed: ${lost.head}")
    else if (facts.executors.subsetOf(facts.acknowledged)) LookElsewhere(missing)
    else if (facts.waitedMs >= timeoutMs) {
      val silent = facts.executors -- facts.acknowledged
      Fail(
        s"${missing.size} of ${facts.awaited.size} changelogs are not durable after " +
          s"$timeoutMs ms (spark.tidelog.barrier.timeout); still uploading or silent: executors " +
          silent.toSeq.sorted.mkString(", "))
    } else Wait
  }
}
