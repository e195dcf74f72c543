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
    executors = Set("1", "2"),
    acknowledged = Set.empty,
    waitedMs = 0)

  def run(): Unit = {
    checks.check("a batch is published when all its ids are durable, even if an executor is silent") {
      equal(decide(facts), Publish)
      equal(decide(facts.copy(waitedMs = timeoutMs * 2)), Publish)
    }
    checks.check("the failure of an attempt that the commit does not name is no failure") {
      equal(decide(facts.copy(failed = Map("other" -> "disk full"))), Publish)
    }
    checks.check("a batch waits while an executor may still have what is missing") {
      equal(decide(missing.copy(acknowledged = Set("1"))), Wait)
    }
    checks.check("a failed upload of a named id fails the batch at once") {
      failsWith(missing.copy(failed = Map("b" -> "disk full")), "disk full")
    }
    checks.check("what no executor has is looked for elsewhere") {
      equal(decide(missing.copy(acknowledged = Set("1", "2"))), LookElsewhere(Set("b")))
      equal(decide(missing.copy(executors = Set.empty)), LookElsewhere(Set("b")))
    }
    checks.check("an executor that is gone is not waited for") {
      val survivor = missing.copy(executors = Set("2"), acknowledged = Set("1", "2"))
      equal(decide(survivor), LookElsewhere(Set("b")))
    }
    checks.check("a batch that waited too long fails and names who is silent") {
      failsWith(missing.copy(acknowledged = Set("1"), waitedMs = timeoutMs), "executors 2")
    }
    checks.check("no facts publish a batch with an id that is not durable") {
      for (some <- facts.awaited.subsets(); seen <- facts.executors.subsets()) {
        val lacking = facts.copy(durable = some, acknowledged = seen, waitedMs = timeoutMs)
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
