package tidelog.spark.core

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.snapshot.{Pace, SnapshotAge, SnapshotPeriod, SnapshotPhase, SparkStores}

final class PhaseChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("every store snapshots once in every period") {
      for (period <- Seq(1, 2, 10, 37, 202); partition <- 0 until 50; start <- Seq(1L, 1000L)) {
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
    checks.check("the snapshots of a few stores are spread over the period") {
      for (start <- 1L to 160L) {
        val some = (start until start + 60).map(version => (0 until 20).count(due(version, 160, _)))
        equal(some.sum >= 6 && some.sum <= 9, true)
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
    checks.check("the pace is the median time of a version, so neither a pause nor slow seconds count") {
      val steady = (1 to 90).foldLeft(Pace.start)((pace, version) => pace.seen(version.toLong, version * 500L))
      equal(steady.after(10), Some(500.0))
      val skipped = steady.seen(190, 1_000_000)
      equal(skipped.after(10), Some(500.0))
      val paused = skipped.seen(191, 1_060_000)
      equal(paused.after(10), Some(500.0))
      val slower =
        (1 to 31).scanLeft(paused)((pace, step) => pace.seen(191L + step, 1_060_000 + step * 2000L))
      equal(slower(20).after(10), Some(500.0))
      equal(slower(31).after(10), Some(2000.0))
    }
    checks.check("a pace is not known before enough versions were seen") {
      val paces = (1 to 12).scanLeft(Pace.start)((pace, version) => pace.seen(version.toLong, version * 500L))
      equal(paces.map(_.after(10).isDefined), (0 to 12).map(_ > 10))
      equal(paces.take(2).flatMap(_.after(0)), Seq.empty)
    }
    checks.check("a store is late when its newest uploaded snapshot is a period old") {
      val loaded = SnapshotAge().stored(12)
      equal((13L to 40L).find(v => loaded.begun(v).late(v, 8, 4)), Some(20L))
      equal((1L to 40L).find(v => SnapshotAge().begun(v).late(v, 4, 4)), Some(4L))
    }
    checks.check("a snapshot that is not uploaded is taken again after half a period") {
      val waiting = SnapshotAge(taken = 20).stored(12)
      equal((21L to 60L).find(v => waiting.begun(v).late(v, 16, 4)), Some(28L))
      equal((21L to 60L).find(v => waiting.begun(v).late(v, 4, 4)), Some(24L))
      equal((21L to 60L).find(v => waiting.stored(20).begun(v).late(v, 16, 4)), Some(36L))
    }
    checks.check("what an attempt has left that failed is no snapshot of the next") {
      val failed = SnapshotAge(taken = 20).stored(20)
      equal(failed.begun(20), SnapshotAge())
      equal(failed.begun(21), failed)
    }
    checks.check("the oldest retained version is restored from the floor") {
      val age = Seq(10L, 20L, 30L).foldLeft(SnapshotAge())(_.stored(_))
      equal(Seq(1, 2, 11, 12, 21, 22).map(age.floor), Seq(30L, 20L, 20L, 10L, 10L, 0L))
      equal(age.from(20).floor(11), 20L)
      equal(SnapshotAge().floor(1), 0L)
      equal(age.begun(30).floor(1), 20L)
    }
    checks.check("in runs of any length a store has a snapshot in every period, with uploads or without") {
      for (length <- Seq(1, 2, 3, 7, 50); partition <- 0 until 8; uploads <- Seq(true, false)) {
        val taken = snapshots(versions = 200, length, partition, uploads)
        val distances = (0L +: taken).zip(taken).map { case (one, next) => next - one }
        equal(distances.forall(_ <= (if (length > 10) 64 else 10)), true)
        equal(taken.nonEmpty, true)
      }
    }
    checks.check("a provider that keeps its store to itself is no reason to report Spark's version") {
      val wrapping = java.lang.reflect.Proxy.newProxyInstance(
        getClass.getClassLoader,
        Array(classOf[StateStoreProvider]),
        (_, method, _) => throw new UnsupportedOperationException(method.getName))
      val provider = wrapping.asInstanceOf[StateStoreProvider]
      equal(SparkStores.rocksDB(provider), None)
      equal(SparkStores.rocksDB(provider), None)
      val said = SparkStores.unreachable("org.example.Mine")
      equal(
        said,
        "tidelog: the snapshots of stores of org.example.Mine are not staggered, because it has " +
          "no method rocksDB that returns its store; those of other providers are, and all else " +
          "works. Next: nothing, or use org.apache.spark.sql.execution.streaming.state." +
          "RocksDBStateStoreProvider (a retry is safe).")
    }
  }

  /** The versions with snapshots of a store that commits every second, in runs of a length. */
  private def snapshots(versions: Int, length: Int, partition: Int, uploads: Boolean): Seq[Long] = {
    var (age, pace) = (SnapshotAge(), Pace.start)
    (1L to versions.toLong).filter { version =>
      // Of a new run's store only what it loads is known.
      if (version % length == 1 || length == 1) {
        age = age.copy(taken = 0)
        pace = Pace.start
      }
      pace = pace.seen(version, version * 1000)
      age = age.begun(version)
      val period = SnapshotPeriod.versions(10, 64_000, pace.after(10))
      val taken = age.late(version, period, 10) || due(version, period, partition)
      if (taken) age = age.copy(taken = version)
      if (taken && uploads) age = age.stored(version)
      taken
    }
  }

  private def due(version: Long, period: Int, partition: Int): Boolean =
    SnapshotPhase.due(version, period, 0, partition, "default")
}
