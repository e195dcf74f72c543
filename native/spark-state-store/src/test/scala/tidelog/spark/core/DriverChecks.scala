package tidelog.spark.core

import java.nio.file.{Files, Path => LocalPath}

import scala.util.Try

import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import org.apache.spark.SparkConf

import tidelog.spark.{Checks, Settings}
import tidelog.spark.Checks.equal
import tidelog.spark.driver.{DriverSide, QueryRun}
import tidelog.spark.faults.LightLocalFs
import tidelog.spark.format.ChangelogName
import tidelog.spark.index.NamedId
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Part}
import tidelog.spark.snapshot.{SnapshotStatus, SnapshotTurn}
import tidelog.spark.storage.AtomicFiles

/** The driver's side of queries that come and go, over local directories. */
final class DriverChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("queries that have ended leave nothing behind, whatever arrives late") {
      val driver = new Driver
      (0 until 200).foreach { number =>
        val run = s"run-$number"
        driver.commit(run, batch = 0)
        driver.part(run, version = 2, "of a batch that is not committed")
        driver.side.runEnded(run)
        equal(driver.part(run, version = 2, "late"), Answer.Received)
      }
      equal(driver.side.known, Set.empty[CheckpointRoot])
      equal(driver.gauge("parts.bytes"), 0L)
    }
    checks.check("a directory is known until the last run that uses it has ended") {
      val driver = new Driver
      driver.commit("first", batch = 0)
      driver.commit("second", batch = 1, directory = "first")
      driver.side.runEnded("first")
      equal(driver.side.known, Set(driver.root("first")))
      driver.commit("second", batch = 2, directory = "first")
      driver.side.runEnded("second")
      equal(driver.side.known, Set.empty[CheckpointRoot])
    }
    checks.check("a job group that the user has set in the query's thread keeps nothing") {
      val driver = new Driver
      driver.commit("run", batch = 0, group = "00000000-0000-0000-0000-000000000001")
      driver.side.runEnded("run")
      equal(driver.side.known, Set.empty[CheckpointRoot])
    }
    checks.check("a query that is stopped while its barrier waits is no failure of a barrier") {
      val driver = new Driver("commit.bytes" -> "0") // or there is nothing to wait for
      Thread.currentThread().interrupt()
      val ended =
        try {
          driver.commit("run", batch = 0)
          "committed"
        } catch { case _: InterruptedException => "stopped" }
      equal((ended, driver.counter("barrier.failures")), ("stopped", 0L))
    }
    checks.check("options that exclude each other are refused, wherever they were set") {
      Seq(
        Seq("inFlight.bytes" -> "1m"),
        Seq("segment.bytes" -> "100k", "part.bytes" -> "200k"),
        Seq("barrier.timeout" -> "1s")).foreach { options =>
        val conf = new SparkConf(false)
        options.foreach { case (name, value) => conf.set(s"spark.tidelog.$name", value) }
        val refused = Try(Settings.of(conf)).failed.map(_.getMessage).getOrElse("accepted")
        equal(refused.takeWhile(_ != ';'), s"spark.tidelog.${options.head._1}")
      }
    }
    checks.check("parts that no commit of their run will name give their room back") {
      val driver = new Driver
      driver.part("run", version = 1, "of an attempt that has lost")
      driver.commit("run", batch = 0)
      equal(driver.gauge("parts.bytes"), 0L)
    }
  }
}

/** A driver of queries with one state store each. */
private final class Driver(options: (String, String)*) {
  private val registry = new MetricRegistry
  private val directory: LocalPath = Files.createTempDirectory("tidelog-driver")
  private var calling = QueryRun(None, None)
  private var files = Map.empty[String, AtomicFiles]

  private val conf = new SparkConf(false)
  options.foreach { case (name, value) => conf.set(s"spark.tidelog.$name", value) }

  val side = new DriverSide(startMs = 1, Settings.of(conf), registry, () => calling)

  def root(name: String): CheckpointRoot =
    CheckpointRoot(new Path(directory.resolve(name).toUri).toString.stripSuffix("/"))

  def part(run: String, version: Long, id: String, directory: String = ""): AnyRef = {
    val name = ChangelogName(0, 0, "default", version, id)
    val at = root(if (directory.isEmpty) run else directory)
    side.receive(Part(at.uri, run, name, new Array[Byte](10), SnapshotStatus(SnapshotTurn.NotYet)))
  }

  /** A batch whose only part arrives and is committed. */
  def commit(run: String, batch: Long, directory: String = "", group: String = ""): Unit = {
    val at = root(if (directory.isEmpty) run else directory)
    calling = QueryRun(Some("query"), Some(if (group.isEmpty) run else group))
    val manager = files.getOrElse(run, {
      val opened = AtomicFiles.open(new Path(at.uri), LightLocalFs.configuration())
      opened.prepare(at.commits)
      opened
    })
    files += run -> manager
    val id = s"$run-$batch"
    equal(part(run, batch + 1, id, directory), Answer.Received)
    val barrier = side.barrier(at, batch, manager)
    val gathered = barrier.gather(Vector(NamedId(0, 0, id)))
    equal(gathered.index.entries.map(_.name.id), Vector(id))
    barrier.published(gathered, indexBytes = 1)
  }

  def counter(name: String): Long = registry.counter(name).getCount

  def gauge(name: String): Any = registry.getGauges.get(name).getValue
}
