package tidelog.spark.core

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.snapshot.SnapshotPhase

final class PhaseChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("every store snapshots once in every period") {
      for (period <- Seq(1, 2, 10, 37); partition <- 0 until 50; start <- Seq(1L, 1000L)) {
        val times = (start until start + period).count(due(_, period, partition))
        equal(times, 1)
      }
    }
    checks.check("no batch has two snapshots more than another") {
      for (period <- Seq(2, 10, 37); partitions <- Seq(1, 8, 64, 200)) {
        val counts = (1L to period.toLong).map(version => (0 until partitions).count(due(version, period, _)))
        equal(counts.max - counts.min <= 1, true)
      }
    }
    checks.check("Spark's own rule then says the same") {
      for (period <- Seq(1, 10); version <- 1L to 40L; partition <- 0 until 20) {
        val isDue = due(version, period, partition)
        val last = SnapshotPhase.lastSnapshot(version, period, isDue)
        equal(version - last >= period, isDue)
      }
    }
  }

  private def due(version: Long, period: Int, partition: Int): Boolean =
    SnapshotPhase.due(version, period, 0, partition, "default")
}
