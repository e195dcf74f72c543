package tidelog.spark.core

import java.lang.ref.WeakReference

import scala.jdk.CollectionConverters._

import com.codahale.metrics.MetricRegistry
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.driver.{
  BatchReport,
  BatchReports,
  DriverMetrics,
  ExecutorSums,
  Gathered,
  HouseKeeping,
  HouseKept
}
import tidelog.spark.executor.ExecutorMetrics
import tidelog.spark.format.{ChangelogName, IndexDocument, IndexEntry, Piece}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.StoredSegment
import tidelog.spark.snapshot.{SnapshotStatus, SnapshotTurn}
import tidelog.spark.snapshot.SnapshotTurn.{PutOff, Taken}

/** What the plug-in says of itself: metrics of driver and executors, and reports of batches. */
final class MetricsChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("an executor tells the driver every figure that the driver sums up") {
      equal(new ExecutorMetrics(new MetricRegistry).figures.keySet, ExecutorMetrics.Names.toSet)
    }
    checks.check("driver and executor have no metric of one name") {
      val (one, other) = (new MetricRegistry, new MetricRegistry)
      new DriverMetrics(one)
      new ExecutorMetrics(other)
      equal(one.getNames.asScala.toSet.intersect(other.getNames.asScala.toSet), Set.empty[String])
    }
    checks.check("the segments of roll-ups are counted with their bytes") {
      val registry = new MetricRegistry
      val keeping = new HouseKeeping(new DriverMetrics(registry))
      Seq(30L, 12L).foreach(keeping.packed)
      val counted = Seq("rollUps.segments", "rollUps.upload.bytes").map(registry.counter(_).getCount)
      equal(counted, Seq(2L, 42L))
    }
    checks.check("totals keep what executors had counted that are gone, levels do not") {
      val sums = new ExecutorSums
      sums.report("1", Map("changelogs" -> 5L, "cache.bytes" -> 7L))
      sums.report("2", Map("changelogs" -> 1L, "cache.bytes" -> 2L))
      sums.report("1", Map("changelogs" -> 6L, "cache.bytes" -> 9L))
      equal((sums.alive, sums.sum("changelogs"), sums.sum("cache.bytes")), (2, 7L, 11L))
      sums.removed("1")
      equal((sums.alive, sums.sum("changelogs"), sums.sum("cache.bytes")), (1, 7L, 2L))
      sums.removed("2")
      equal((sums.alive, sums.sum("changelogs"), sums.sum("cache.bytes")), (0, 7L, 0L))
    }
    checks.check("of what is no sum the largest value of an executor that is there counts") {
      val sums = new ExecutorSums
      equal(sums.sum("snapshots.lag"), 0L)
      sums.report("1", Map("snapshots.lag" -> 5L))
      sums.report("2", Map("snapshots.lag" -> 3L))
      equal(sums.sum("snapshots.lag"), 5L)
      sums.removed("1")
      equal(sums.sum("snapshots.lag"), 3L)
    }
    checks.check("a snapshot is put off where Spark alone would have taken it") {
      val turns = (1L to 12L).map(version => SnapshotTurn.of(version, 3, due = version % 6 == 2))
      val expected = Map(2 -> SnapshotTurn.Taken, 8 -> SnapshotTurn.Taken) ++
        Seq(3, 6, 9, 12).map(_ -> SnapshotTurn.PutOff)
      equal(turns, (1 to 12).map(expected.getOrElse(_, SnapshotTurn.NotYet)))
    }
    reports()
  }

  private def reports(): Unit = {
    checks.check("the report of a batch adds up its segments and the house-keeping") {
      val uploads = Vector(stored(9000000, 3), stored(2500000, 1), stored(4000000, 1))
      val states = Vector(SnapshotStatus(Taken, uploaded = 3), SnapshotStatus(PutOff))
      val found = read(report(7, uploads, HouseKept(1, 2, 3, 4, 500), states).json)
      equal(found.path("query").asText, "q")
      equal(found.path("snapshot_lags").toString, """{"0/1":8,"0/0":5}""")
      equal(found.path("batch").asLong, 7L)
      equal(figures(found), Map(
        "changelogs" -> 2.0, "changelog_bytes" -> 30.0, "segments" -> 2.0, "segment_bytes" -> 300.0,
        "commit_bytes" -> 0.0, "blocks" -> 3.0, "index_bytes" -> 77.0, "barrier_wait_ms" -> 31.0, "upload_ms_p50" -> 4.0,
        "upload_ms_max" -> 9.0, "upload_attempts" -> 5.0, "snapshots" -> 1.0,
        "snapshots_put_off" -> 1.0, "roll_ups" -> 1.0, "segments_deleted" -> 2.0,
        "house_keeping_failures" -> 3.0, "live_segments" -> 4.0, "live_bytes" -> 500.0))
    }
    checks.check("a batch without uploads has no times of uploads") {
      val found = read(report(7, Vector.empty, HouseKept()).json)
      equal(Seq("upload_ms_p50", "upload_ms_max").map(found.path(_).isNull), Seq(true, true))
    }
    checks.check("the newest thousand reports are kept, a batch that ran again among them") {
      val kept = new BatchReports
      (0L until 1000L).foreach(batch => kept.add(report(batch, Vector.empty, HouseKept())))
      kept.add(report(0, Vector(stored(1, 1)), HouseKept()))
      kept.add(report(1000, Vector.empty, HouseKept()))
      equal(kept.find("q", 0).map(read(_).path("upload_attempts").asInt), Some(1))
      equal(Seq(1L, 2L, 1000L).map(kept.find("q", _).isDefined), Seq(false, true, true))
      equal(kept.find("other", 2), None)
    }
    checks.check("a kept report holds no index of its batch") {
      val kept = new BatchReports
      val index = added(kept)
      System.gc()
      equal((kept.find("q", 0).isDefined, Option(index.get)), (true, None))
    }
    checks.check("house-keeping is reported once, what is stored every time") {
      val keeping = new HouseKeeping(new DriverMetrics(new MetricRegistry))
      keeping.rolledUp()
      keeping.deletedSegment()
      keeping.swept(2)
      keeping.failed()
      keeping.live(8, 900)
      equal(keeping.take(), HouseKept(1, 3, 1, 8, 900))
      equal(keeping.take(), HouseKept(0, 0, 0, 8, 900))
    }
  }

  private def added(kept: BatchReports): WeakReference[IndexDocument] = {
    val made = report(0, Vector.empty, HouseKept())
    kept.add(made)
    new WeakReference(made.gathered.index)
  }

  private def stored(elapsedNs: Long, attempts: Int) = StoredSegment("a", 200, elapsedNs, attempts)

  private def report(
      batch: Long,
      segments: Vector[StoredSegment],
      kept: HouseKept,
      states: Vector[SnapshotStatus] = Vector.empty): BatchReport = {
    def entry(partition: Int, bytes: Long, pieces: Piece*) =
      IndexEntry(ChangelogName(0, partition, "default", batch + 1, "id"), bytes, pieces.toVector)
    val entries = Vector(
      entry(0, 10, Piece("a", 0, 50)),
      entry(1, 20, Piece("a", 50, 50), Piece("b", 0, 50)))
    val index = IndexDocument(batch, batch, Map("a" -> 200L, "b" -> 100L), entries)
    val gathered = Gathered(index, segments, None, states, None, 31)
    BatchReport(Some("q"), CheckpointRoot("file:/c"), gathered, 77, kept)
  }

  private def read(report: String): JsonNode = new ObjectMapper().readTree(report)

  private def figures(document: JsonNode): Map[String, Double] =
    document.properties.asScala
      .map(field => field.getKey -> field.getValue)
      .collect { case (name, value) if value.isNumber && name != "batch" => name -> value.asDouble }
      .toMap
}
