package tidelog.spark.core

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.{AbstractExecutorService, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.driver.{DriverMetrics, HeldBytes, Packer, PackerListener, PackerServices}
import tidelog.spark.faults.LightLocalFs
import tidelog.spark.format.{ChangelogName, IndexEntry, SegmentReader}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Part, StoredSegment}
import tidelog.spark.snapshot.{SnapshotStatus, SnapshotTurn}
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.{SegmentNames, SegmentUpload}

/** Parts on their way into segments in a local directory. */
final class PackerChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("the parts of a commit share a segment, and what it does not name is dropped") {
      val packed = new Packing
      Seq("a", "b", "lost").foreach(id => equal(packed.add(id, version = 8), true))
      equal(packed.add("later", version = 9), true)
      equal(packed.stored, Vector.empty)
      packed.packer.flush(Set("a", "b"), batch = 7)
      equal(packed.stored, Vector(Set("a", "b")))
      equal(packed.packer.underWay, Set("later"))
      equal(packed.held.bytes, 10L)
      packed.packer.flush(Set("later"), batch = 8)
      equal(packed.stored, Vector(Set("a", "b"), Set("later")))
      equal((packed.held.bytes, packed.packer.underWay), (0L, Set.empty[String]))
    }
    checks.check("parts that fill a segment leave before the commit") {
      val packed = new Packing
      (1 to 7).foreach(number => packed.add(s"p$number", version = 8))
      equal(packed.stored.map(_.size), Vector(5))
      equal(packed.held.bytes, 20L)
    }
    checks.check("the part of the last store leaves before the commit, with the others") {
      val packed = new Packing
      Seq(1, 2).foreach(store => packed.add(s"a$store", version = 8, store))
      packed.packer.flush(Set("a1", "a2"), batch = 7)
      packed.add("b1", version = 9, partition = 1)
      packed.add("lost", version = 8, partition = 2)
      equal(packed.stored, Vector(Set("a1", "a2")))
      packed.add("b2", version = 9, partition = 2)
      equal(packed.stored, Vector(Set("a1", "a2"), Set("b1", "lost", "b2")))
      packed.add("again", version = 9, partition = 2)
      packed.packer.flush(Set("b1", "b2"), batch = 8)
      equal((packed.stored.size, packed.held.bytes), (2, 0L))
    }
    checks.check("few parts are packed for their commit, more are uploaded") {
      val packed = new Packing(commitBytes = 20)
      Seq(1, 2).foreach(store => packed.add(s"a$store", version = 8, store))
      packed.add("lost", version = 8, partition = 3)
      val few = packed.packer.flush(Set("a1", "a2"), batch = 7).get
      equal(few.parts.map(_._1.name.id), Vector("a1", "a2"))
      equal(few.parts.flatMap(_._2.pieces.map(_.segment)).toSet, Set("commits/7"))
      equal(SegmentReader.footer(few.segment, "commits/7").map(_.name), few.parts.map(_._1.name))
      equal((packed.stored, packed.held.bytes), (Vector.empty[Set[String]], 0L))
      (1 to 3).foreach(store => packed.add(s"b$store", version = 9, store))
      equal(packed.packer.flush(Set("b1", "b2", "b3"), batch = 8), None)
      equal(packed.stored, Vector(Set("b1", "b2", "b3")))
    }
    checks.check("a part without room is refused") {
      val held = new HeldBytes(limit = 10)
      equal(Seq(held.take(7), held.take(4), held.take(3)), Seq(true, false, true))
      held.release(7)
      equal(held.take(7), true)
    }
    checks.check("parts that cannot be stored have failed and give their room back") {
      val packed = new Packing(deadlineMs = 0, broken = true)
      packed.add("a", version = 8)
      packed.packer.flush(Set("a"), batch = 7)
      equal((packed.failed, packed.held.bytes), (Set("a"), 0L))
      equal(packed.packer.underWay, Set.empty[String])
    }
    checks.check("a packer that is closed holds nothing") {
      val packed = new Packing
      packed.add("a", version = 8)
      packed.packer.close()
      equal((packed.held.bytes, packed.stored), (0L, Vector.empty[Set[String]]))
    }
  }
}

/** A packer whose segments take five parts of ten bytes, and which uploads in the calling thread. */
private final class Packing(
    deadlineMs: Long = 1000,
    broken: Boolean = false,
    commitBytes: Long = 0)
    extends PackerListener {
  val held = new HeldBytes(limit = 1000)
  var stored = Vector.empty[Set[String]]
  var failed = Set.empty[String]

  private val path = new Path(Files.createTempDirectory("tidelog-packer").toUri)
  private val root = CheckpointRoot(path.toString.stripSuffix("/"))
  private val files = AtomicFiles.open(path, LightLocalFs.configuration())
  private val uploads =
    new SegmentUpload(deadlineMs, new DriverMetrics(new MetricRegistry).uploads)

  val packer = new Packer(
    root,
    () => if (broken) throw new IOException("disk full") else files,
    PackerServices(
      SegmentNames("driver", startMs = 1), segmentBytes = 50, commitBytes, held, uploads),
    Inline,
    this)

  def add(id: String, version: Long, partition: Int = 1): Boolean = {
    val part = Part(
      root.uri, "0123456789", ChangelogName(0, partition, "default", version, id),
      new Array[Byte](10), SnapshotStatus(SnapshotTurn.NotYet))
    val room = held.take(10)
    packer.add(part)
    room
  }

  override def stored(parts: Vector[(Part, IndexEntry)], segment: StoredSegment): Unit =
    stored :+= parts.map(_._2.name.id).toSet

  override def failed(parts: Vector[Part], error: Throwable): Unit =
    failed ++= parts.map(_.name.id)
}

private object Inline extends AbstractExecutorService {
  override def execute(work: Runnable): Unit = work.run()
  override def shutdown(): Unit = ()
  override def shutdownNow(): java.util.List[Runnable] = Seq.empty[Runnable].asJava
  override def isShutdown: Boolean = false
  override def isTerminated: Boolean = false
  override def awaitTermination(timeout: Long, unit: TimeUnit): Boolean = true
}
