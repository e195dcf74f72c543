package tidelog.spark.core

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.snapshot.{Pace, SnapshotPeriod, SnapshotPhase, SnapshotScheduler}

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
    checks.check("a query with slow batches keeps Spark's period, a fast one doubles it") {
      equal(SnapshotPeriod.versions(10, 240_000, None), 10)
      equal(SnapshotPeriod.versions(10, 240_000, Some(60_000.0)), 10)
      equal(SnapshotPeriod.versions(10, 240_000, Some(10_000.0)), 20)
      equal(SnapshotPeriod.versions(10, 240_000, Some(1000.0)), 160)
      equal(SnapshotPeriod.versions(10, 240_000, Some(1.0)), 160)
      equal(SnapshotPeriod.versions(10, 0, Some(1.0)), 10)
    }
    checks.check("what is due by a longer period is due by every shorter one") {
      for (version <- 1L to 400L; partition <- 0 until 20; period <- Seq(20, 40, 80, 160)) {
        if (due(version, period, partition)) equal(due(version, period / 2, partition), true)
      }
    }
    checks.check("the pace is the smoothed time between neighbouring versions") {
      val steady = (1 to 50).foldLeft(Pace.start)((pace, version) => pace.seen(version.toLong, version * 500L))
      equal(steady.versionMs, Some(500.0))
      val paused = steady.seen(90, 1_000_000)
      equal(paused.versionMs, Some(500.0))
      equal(paused.seen(91, 1_001_500).versionMs, Some(600.0))
    }
    checks.check("a provider that keeps its store to itself is no reason to report Spark's version") {
      val wrapping = java.lang.reflect.Proxy.newProxyInstance(
        getClass.getClassLoader,
        Array(classOf[StateStoreProvider]),
        (_, method, _) => throw new UnsupportedOperationException(method.getName))
      val provider = wrapping.asInstanceOf[StateStoreProvider]
      equal(SnapshotScheduler.rocksDB(provider), None)
      equal(SnapshotScheduler.rocksDB(provider), None)
      val said = SnapshotScheduler.unreachable("org.example.Mine")
      equal(
        said,
        "tidelog: the snapshots of stores of org.example.Mine are not staggered, because it has " +
          "no method rocksDB that returns its store; those of other providers are, and all else " +
          "works. Next: nothing, or use org.apache.spark.sql.execution.streaming.state." +
          "RocksDBStateStoreProvider (a retry is safe).")
    }
  }

  private def due(version: Long, period: Int, partition: Int): Boolean =
    SnapshotPhase.due(version, period, 0, partition, "default")
}
