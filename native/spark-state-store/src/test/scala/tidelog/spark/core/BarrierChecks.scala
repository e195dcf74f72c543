package tidelog.spark.core

import tidelog.spark.driver.{Barrier, BarrierDecision, BarrierFacts}
import tidelog.spark.driver.BarrierDecision._
import tidelog.spark.Checks
import tidelog.spark.Checks.equal

final class BarrierChecks(checks: Checks) {
  private val timeoutMs = 1000L
  private val facts = BarrierFacts(
    awaited = Set("a", "b"),
    durable = Set("a", "b", "other"),
    failed = Map.empty,
    underWay = Set.empty,
    waitedMs = 0)

  def run(): Unit = {
    checks.check("a batch is published when all its ids are durable") {
      equal(decide(facts), Publish)
      equal(decide(facts.copy(waitedMs = timeoutMs * 2)), Publish)
    }
    checks.check("the failure of an attempt that the commit does not name is no failure") {
      equal(decide(facts.copy(failed = Map("other" -> "disk full"))), Publish)
    }
    checks.check("a batch waits while what is missing is being uploaded") {
      equal(decide(missing.copy(underWay = Set("b"))), Wait)
    }
    checks.check("a failed upload of a named id fails the batch at once") {
      failsWith(missing.copy(failed = Map("b" -> "disk full"), underWay = Set("b")), "disk full")
    }
    checks.check("what the driver does not have is looked for elsewhere") {
      equal(decide(missing), LookElsewhere(Set("b")))
      val neither = missing.copy(durable = Set.empty, underWay = Set("a"))
      equal(decide(neither), LookElsewhere(Set("b")))
    }
    checks.check("a batch that waited too long fails and says for what") {
      failsWith(missing.copy(underWay = Set("b"), waitedMs = timeoutMs), "1 of 2 changelogs")
    }
    checks.check("no facts publish a batch with an id that is not durable") {
      for (some <- facts.awaited.subsets(); uploading <- facts.awaited.subsets()) {
        val lacking = facts.copy(durable = some, underWay = uploading, waitedMs = timeoutMs)
        equal(decide(lacking) == Publish, some == facts.awaited)
      }
    }
  }

  private def missing: BarrierFacts = facts.copy(durable = Set("a"))

  private def decide(known: BarrierFacts): BarrierDecision = Barrier.decide(known, timeoutMs)

  private def failsWith(known: BarrierFacts, text: String): Unit = decide(known) match {
    case Fail(reason) => equal(reason.contains(text), true)
    case other => equal[Any](other, s"a failure with '$text'")
  }
}
