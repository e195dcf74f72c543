package tidelog.spark.core

import java.nio.file.{Files, Path => LocalPath}
import java.util.Comparator

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import tidelog.spark.driver.{Collector, DriverMetrics}
import tidelog.spark.Checks
import tidelog.spark.format._
import tidelog.spark.Checks.equal
import tidelog.spark.index._
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.storage.AtomicFiles

/** The log of a checkpoint on a local directory, through the lives of several drivers. */
final class LogChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("whatever crashes, what Spark still needs is readable and nothing else stays") {
      (0 until 6).foreach(seed => inDirectory(new RandomLog(_, new Random(seed)).run(50)))
    }
    checks.check("an index that points to other bytes is an error, not wrong state") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1))
        log.commit(partitions = 2)
        log.swapPieces()
        Checks.refused("expected")(log.read(log.needed.head))
      }
    }
    checks.check("a segment that is truncated, damaged or gone is an error that names it") {
      Seq[Array[Byte] => Option[Array[Byte]]](
        bytes => Some(bytes.take(60)),
        bytes => Some(bytes.updated(100, (bytes(100) ^ 1).toByte)),
        _ => None).foreach { damage =>
        inDirectory { directory =>
          val log = new RandomLog(directory, new Random(1))
          log.commit(partitions = 1)
          log.damageSegments(damage)
          Checks.refused(".seg")(log.read(log.needed.head))
        }
      }
    }
  }

  private def inDirectory(body: LocalPath => Unit): Unit = {
    val directory = Files.createTempDirectory("tidelog-log")
    try body(directory)
    finally Files.walk(directory).sorted(Comparator.reverseOrder[LocalPath]()).forEach(Files.delete(_))
  }
}

/** Drivers, executors and Spark's maintenance in one thread, with a plain map beside them. */
private final class RandomLog(directory: LocalPath, random: Random) {
  private val path = new Path(directory.toUri)
  private val files = AtomicFiles.open(path, new Configuration)
  private val root = CheckpointRoot(path.toString.stripSuffix("/"))
  private val stored = new IndexFiles(root, files)
  private var model = Map.empty[ChangelogName, Vector[Byte]]
  private var batch = 0L
  private var driver = 0
  private var segments = 0L
  private var collector: Collector = _
  private val retained = if (random.nextBoolean()) 12 else 3
  private var history = Vector.empty[String]

  files.prepare(root.segments)
  files.prepare(root.commits)
  restart()

  def run(steps: Int): Unit = {
    (0 until steps).foreach { _ =>
      random.nextInt(10) match {
        case 0 => restart()
        case 1 => crashBeforeCommit()
        case 2 => loseRollUp()
        case 3 => maintain()
        case _ => commit(1 + random.nextInt(4))
      }
      readAll()
    }
    restart()
    commit(partitions = 1)
    maintain(everything = true)
    commit(partitions = 1)
    readAll()
    census()
  }

  def needed: Iterable[ChangelogName] = model.keys

  def restart(): Unit = {
    history :+= s"restart@$batch"
    driver += 1
    collector =
      new Collector(stored, f"run$driver%05d", new DriverMetrics(new MetricRegistry))
  }

  /** One batch: segments of winners and losers, the commit, the house-keeping. */
  def commit(partitions: Int): Unit = {
    val (entries, lengths) = upload(partitions)
    entries.foreach { case (entry, content) => model += entry.name -> content.toVector }
    val index = IndexDocument(batch, batch, lengths, entries.map(_._1))
    val ids = entries.map { case (entry, _) => s"""["${entry.name.id}"]""" }.mkString(",")
    val commit = s"""v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[$ids]}}""".getBytes
    files.write(root.commit(batch), CommitFile.withIndex(commit, index), overwrite = false)
    collector.committed(batch, index.entries)
    batch += 1
    collector.deleteCommit(batch - retained / 2)
  }

  private def crashBeforeCommit(): Unit = {
    upload(2)
    restart()
  }

  /** Uploads what tasks wrote, and beside it an attempt that no commit will name. */
  private def upload(partitions: Int): (Vector[(IndexEntry, Array[Byte])], Map[String, Long]) = {
    val lost = (0 until random.nextInt(2)).map(put(_, "lost"))
    val won = (0 until partitions).map(put(_, "won"))
    val lengths = (lost ++ won).flatMap(_._3)
    (won.map { case (entry, content, _) => (entry, content) }.toVector, lengths.toMap)
  }

  private def put(partition: Int, kind: String): (IndexEntry, Array[Byte], Seq[(String, Long)]) = {
    val name = ChangelogName(0, partition, "default", batch + 1, s"$kind$driver-$segments")
    val content = random.nextBytes(random.nextInt(200))
    val cut = random.nextInt(content.length + 1)
    val parts = if (random.nextBoolean()) Seq(content) else Seq(content.take(cut), content.drop(cut))
    val pieces = parts.zipWithIndex.map { case (bytes, number) =>
      write(name, bytes, number, if (number + 1 == parts.length) parts.length else 0)
    }
    (IndexEntry(name, content.length.toLong, pieces.map(_._1).toVector), content, pieces.map(_._2))
  }

  private def write(name: ChangelogName, bytes: Array[Byte], number: Int, pieces: Int) = {
    val segment = ObjectNames.segment(f"run$driver%05d", "1", segments)
    segments += 1
    val builder = new SegmentBuilder(SegmentAuthor(1, "x", segments), segment)
    val piece = builder.add(name, number, pieces, bytes)
    val data = builder.result()
    files.write(root.segment(segment), data, overwrite = true)
    collector.segmentStored(segment, data.length.toLong, name.version)
    (piece, segment -> data.length.toLong)
  }

  /** Spark's maintenance: deletes what is older than it retains, as the listing shows it. */
  private def maintain(everything: Boolean = false): Unit = {
    val oldest = batch + 1 - retained
    val reader = new IndexReader(root, files)
    val listed = (0 until 4).flatMap(partition => reader.directory(s"0/$partition")).map(_.name)
    val old = listed.filter(_.version < oldest).toSet
    // While a roll-up is lost Spark does not see, and does not delete, what it named.
    if (everything) equal(model.keySet.filter(_.version < oldest) -- old, Set.empty[ChangelogName])
    history :+= s"maintain@$oldest"
    val told = if (everything) old else old.filter(_ => random.nextInt(4) > 0)
    model --= old
    collector.deleted(told.toVector)
  }

  private def loseRollUp(): Unit = stored.rollUps().lastOption.foreach { first =>
    history :+= s"lose@$first"
    val file = root.rollUp(first)
    if (random.nextBoolean()) stored.deleteRollUp(first)
    else files.write(file, files.read(file).updated(20, '?'.toByte), overwrite = true)
    restart()
  }

  private def readAll(): Unit = {
    val reader = new IndexReader(root, files)
    model.foreach { case (name, content) => equal(read(name, reader).toVector, content) }
  }

  def read(name: ChangelogName): Array[Byte] = read(name, new IndexReader(root, files))

  private def read(name: ChangelogName, reader: IndexReader): Array[Byte] = {
    val entry = reader.find(name, fresh = true).orElse(reader.search(name)).getOrElse {
      throw new AssertionError(
        s"${name.path} is not found; roll-ups ${stored.rollUps()}, commits ${stored.commits()}, " +
          s"${stored.segments().length} segments, history ${history.mkString(" ")}")
    }
    val cache = new SegmentCache(1 << 20)
    new ChangelogInput(root, entry, files, reader.length, cache).readAllBytes()
  }

  /** Only segments with a changelog that Spark needs are left. */
  private def census(): Unit = {
    val reader = new IndexReader(root, files)
    val segments = model.keys.flatMap(name => reader.find(name, fresh = true)).flatMap(_.pieces)
    equal(stored.segments().map(_._1).toSet, segments.map(_.segment).toSet)
  }

  /** Rewrites the last commit so that each changelog is said to lie where another one does. */
  def swapPieces(): Unit = {
    val file = root.commit(batch - 1)
    val bytes = files.read(file)
    val index = CommitFile.read(bytes, "commit").index.get
    val places = index.entries.map(_.pieces)
    val swapped = index.entries.zip(places.reverse).map { case (entry, pieces) =>
      entry.copy(pieces = pieces)
    }
    val lines = new String(bytes).split("\n").take(2).mkString("\n").getBytes
    val wrong = CommitFile.withIndex(lines, index.copy(entries = swapped))
    files.write(file, wrong, overwrite = true)
  }

  def damageSegments(damage: Array[Byte] => Option[Array[Byte]]): Unit =
    stored.segments().foreach { case (segment, _) =>
      val file = root.segment(segment)
      damage(files.read(file)) match {
        case Some(bytes) => files.write(file, bytes, overwrite = true)
        case None => stored.deleteSegment(segment)
      }
    }
}
