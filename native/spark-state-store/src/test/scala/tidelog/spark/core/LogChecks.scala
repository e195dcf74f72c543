package tidelog.spark.core

import java.io.IOException
import java.nio.file.{Files, Path => LocalPath}
import java.util.Comparator

import scala.util.Random

import org.apache.hadoop.fs.Path

import com.codahale.metrics.MetricRegistry

import tidelog.spark.driver.{Collector, DriverMetrics, HouseKeeping}
import tidelog.spark.Checks
import tidelog.spark.format._
import tidelog.spark.Checks.equal
import tidelog.spark.faults.LightLocalFs
import tidelog.spark.index._
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.SegmentNames

/** The log of a checkpoint on a local directory, through the lives of several drivers. */
final class LogChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("whatever crashes, what Spark still needs is readable and nothing else stays") {
      (0 until 8).foreach { seed =>
        inDirectory(new RandomLog(_, new Random(seed), packs = seed % 2 == 1).run(50))
      }
    }
    checks.check("a batch that ran again is found by a reader that knew the first run") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1))
        (0 until 3).foreach(_ => log.commit(partitions = 2))
        val reader = log.newReader()
        val before = log.needed.toSet
        before.foreach(name => equal(reader.find(name, fresh = true).isDefined, true))
        equal(reader.directory("0/0").map(_.name).toSet, before.filter(_.directory == "0/0"))
        equal(log.setBack(by = 2, newDriver = false), true)
        (0 until 2).foreach(_ => log.commit(partitions = 2))
        val again = log.needed.toSet -- before
        again.foreach(name => equal(reader.findAgain(name).map(_.name), Some(name)))
        val listed = reader.directory("0/0").map(_.name).toSet
        equal(listed, log.needed.filter(_.directory == "0/0").toSet)
      }
    }
    checks.check("a reader knows all batches that are stored, however many a query retains") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1))
        val reader = log.newReader()
        equal(reader.directory("0/0"), Vector.empty[IndexEntry])
        (0 until 530).foreach(_ => log.commit(partitions = 1))
        equal(log.newReader().directory("0/0").length, 530)
        log.needed.foreach(name => equal(reader.find(name, fresh = true).map(_.name), Some(name)))
        equal(reader.directory("0/0").length, 530)
      }
    }
    checks.check("a deleted changelog is gone for the reader that it was deleted through") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1))
        (0 until 2).foreach(_ => log.commit(partitions = 1))
        val (reader, gone) = (log.newReader(), log.needed.minBy(_.version))
        equal(reader.directory(gone.directory).length, 2)
        reader.delete(gone)
        equal(reader.find(gone, fresh = true), None)
        equal(reader.findAgain(gone), None)
        equal(reader.directory(gone.directory).map(_.name), log.needed.toVector.filter(_ != gone))
        equal(log.newReader().find(gone, fresh = true).isDefined, true)
      }
    }
    checks.check("what a roll-up of before a set-back still says costs no changelog") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(3))
        (0 until 10).foreach(_ => log.commit(partitions = 2))
        equal(log.setBack(by = 2, newDriver = true, rollUpsStay = true), true)
        log.commit(partitions = 2)
        log.restart()
        log.commit(partitions = 2)
        log.readAll()
      }
    }
    checks.check("an id that the commit's own index contradicts is an error that says so") {
      val right = ChangelogName(0, 1, "default", 8, "right")
      val entry = IndexEntry(right, 3, Vector(Piece("s", 0, 44)))
      val index = IndexDocument(7, 7, Map("s" -> 100L), Vector(entry))
      val flipped = CommitFile(Vector(NamedId(0, 1, "wrong")), Some(index))
      equal(flipped.misnamed(right.copy(id = "wrong")), Some("right"))
      equal(flipped.misnamed(right.copy(id = "another")), None)
      equal(flipped.misnamed(right.copy(id = "wrong", partition = 2)), None)
      equal(
        CommitFile.misnamed("commits/7", "wrong", "right").getMessage,
        "commit commits/7 is damaged on line 2, Spark's own; expected the checkpoint id right, " +
          "which the checked index on line 3 has; found wrong. Next: stop the query, write right " +
          "in the place of wrong, and start the query again (a retry is safe).")
      val whole = CommitFile(Vector(NamedId(0, 1, "right")), Some(index))
      equal(whole.misnamed(right), None)
    }
    checks.check("damage to an index line asks for no backup and names the line") {
      val commit = "v2\n{}\n{\"body\":{},\"crc32c\":\"00000000\"}".getBytes
      Checks.refused(
        "commits/7, line 3 is damaged; expected CRC32C 00000000; found 297bd0aa. Next: nothing " +
          "has to be done, the segments' footers say the same; a restarted query writes the " +
          "roll-up of these batches again, and one that stays damaged is needed by none: delete " +
          "it (a retry is safe).")(
        CommitFile.read(commit, "commits/7"))
    }
    checks.check("an index that points to other bytes is an error, not wrong state") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1))
        log.commit(partitions = 2)
        log.swapPieces()
        Checks.refused("expected")(log.read(log.needed.head))
      }
    }
    checks.check("a segment in a commit that is damaged or gone is an error that names it") {
      Seq[Array[Byte] => Array[Byte]](
        bytes => bytes.take(bytes.lastIndexOf('\n'.toByte) + 81),
        bytes => bytes.updated(bytes.lastIndexOf('\n'.toByte) + 99, '?'.toByte),
        bytes => bytes.take(bytes.lastIndexOf('\n'.toByte))).foreach { damage =>
        inDirectory { directory =>
          val log = new RandomLog(directory, new Random(1), packs = true)
          while (log.packedBatches.isEmpty) log.commit(partitions = 1)
          log.damageCommit(log.packedBatches.last, damage)
          Checks.refused("commits/")(log.read(log.needed.maxBy(_.version)))
        }
      }
    }
    checks.check("what lies in a commit whose index is damaged is found by its footer") {
      inDirectory { directory =>
        val log = new RandomLog(directory, new Random(1), packs = true)
        while (log.packedBatches.isEmpty) log.commit(partitions = 2)
        val batch = log.packedBatches.last
        log.damageCommit(batch, bytes => new String(bytes).replaceFirst("crc32c", "crc32d").getBytes)
        log.readAll()
        log.restart()
        (0 to 10).foreach(_ => log.commit(partitions = 2))
        log.readAll()
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

/** Drivers, executors and Spark's maintenance in one thread, with a plain map as the model.
  *
  * @param packs whether some batches lie in their commits
  */
private final class RandomLog(directory: LocalPath, random: Random, packs: Boolean = false) {
  private val path = new Path(directory.toUri)
  private val files = AtomicFiles.open(path, LightLocalFs.configuration())
  private val root = CheckpointRoot(path.toString.stripSuffix("/"))
  // Whether the store refuses the house-keeping's listings.
  private var refusing = false
  private val stored = new IndexFiles(root, files) {
    override def commits(): Vector[Long] =
      if (refusing) throw new IOException("slow down") else super.commits()
  }
  private var model = Map.empty[ChangelogName, Vector[Byte]]
  // What executors say with the next commit, by the directory of a store.
  private var floors = Map.empty[String, Long]
  private var batch = 0L
  private var runs = 0
  private var segments = 0L
  private var collector: Collector = _
  private val retained = if (random.nextBoolean()) 12 else 3
  private var history = Vector.empty[String]
  private var first = true
  // One that has seen everything since the start, as that of an executor that lives long.
  private val old = newReader()

  files.prepare(root.segments)
  files.prepare(root.commits)
  restart()

  def run(steps: Int): Unit = {
    (0 until steps).foreach { _ =>
      random.nextInt(13) match {
        case 10 => setBack(1 + random.nextInt(2), newDriver = random.nextBoolean())
        case 11 => if (random.nextInt(4) == 0) emptyDirectory()
        case 12 => restartQuery()
        case 0 => restart()
        case 1 => crashBeforeCommit()
        case 2 => loseRollUp()
        case 3 => maintain()
        case _ => commit(1 + random.nextInt(4), refused = random.nextInt(3) == 0)
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

  /** The batches that lie in their commits. */
  def packedBatches: Vector[Long] = stored.commits().filter(stored.segmentInCommit(_).isDefined)

  def damageCommit(batch: Long, damage: Array[Byte] => Array[Byte]): Unit = {
    val file = root.commit(batch)
    files.write(file, damage(files.read(file)), overwrite = true)
  }

  def restart(): Unit = {
    history :+= s"restart@$batch"
    start()
  }

  private def start(): Unit = {
    runs += 1
    first = true
    val figures = new HouseKeeping(new DriverMetrics(new MetricRegistry))
    collector = new Collector(stored, SegmentNames("driver", startMs = 1), figures)
  }

  def newReader(): IndexReader = new IndexReader(root, files, listingAgeMs = 0)

  /** The next run of the query in the same driver. */
  private def restartQuery(): Unit = {
    history :+= s"query@$batch"
    start()
  }

  /** Somebody removes the newest commits, and the query starts again. */
  def setBack(by: Int, newDriver: Boolean, rollUpsStay: Boolean = false): Boolean = {
    val undone = (batch - by until batch).filter(_ >= 0)
    // Further back than that the query cannot go: the state it would start from is not retained.
    val possible = undone.forall(stored.commits().contains) && by <= retained / 2
    if (possible) {
      history :+= s"back@$batch-$by"
      undone.foreach(stored.deleteCommit)
      batch -= undone.length
      model = model.filter { case (name, _) => name.version <= batch }
      if (newDriver) restart() else restartQuery()
      if (rollUpsStay) first = false
    }
    possible
  }

  /** Somebody removes the whole directory, and a new query starts there. */
  private def emptyDirectory(): Unit = {
    history :+= s"empty@$batch"
    Seq(root.segments, root.commits, root.index).foreach(files.manager.delete)
    files.prepare(root.segments)
    files.prepare(root.commits)
    batch = 0
    model = Map.empty
    floors = Map.empty
    restartQuery()
  }

  /** One batch: segments of winners and losers, the commit, the house-keeping. */
  def commit(partitions: Int, refused: Boolean = false): Unit = {
    val packed = Option.when(packs && random.nextBoolean())(pack(partitions))
    val (entries, lengths) = packed.fold(upload(partitions)) { case (won, segment) =>
      (won, Map(ObjectNames.inCommit(batch) -> segment.length.toLong))
    }
    if (first) collector.undo(batch)
    first = false
    entries.foreach { case (entry, content) => model += entry.name -> content.toVector }
    val index = IndexDocument(batch, batch, lengths, entries.map(_._1))
    val ids = entries.map { case (entry, _) => s"""["${entry.name.id}"]""" }.mkString(",")
    val commit = s"""v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[$ids]}}""".getBytes
    val indexed = CommitFile.withIndex(commit, index)
    val complete = packed.fold(indexed)(one => CommitFile.withSegment(indexed, one._2))
    files.write(root.commit(batch), complete, overwrite = false)
    refusing = refused
    try collector.committed(index, Some(f"run$runs%05d"), floors)
    catch { case _: IOException if refused => () } // logged by the thread that keeps house
    refusing = false
    batch += 1
    collector.deleteCommit(batch - retained / 2)
  }

  private def crashBeforeCommit(): Unit = {
    upload(2)
    restart()
  }

  /** A segment for the commit. */
  private def pack(partitions: Int): (Vector[(IndexEntry, Array[Byte])], Array[Byte]) = {
    val author = SegmentAuthor(1, "x", segments)
    val builder = new SegmentBuilder(author, ObjectNames.inCommit(batch))
    segments += 1
    val won = (0 until partitions).toVector.map { partition =>
      val name = ChangelogName(0, partition, "default", batch + 1, s"packed$runs-$segments")
      val content = random.nextBytes(random.nextInt(200))
      val piece = builder.add(name, 0, 1, content)
      (IndexEntry(name, content.length.toLong, Vector(piece)), content)
    }
    (won, builder.result())
  }

  /** Uploads what tasks wrote, and an attempt that no commit will name. */
  private def upload(partitions: Int): (Vector[(IndexEntry, Array[Byte])], Map[String, Long]) = {
    val lost = (0 until random.nextInt(2)).map(put(_, "lost"))
    val won = (0 until partitions).map(put(_, "won"))
    val lengths = (lost ++ won).flatMap(_._3)
    (won.map { case (entry, content, _) => (entry, content) }.toVector, lengths.toMap)
  }

  private def put(partition: Int, kind: String): (IndexEntry, Array[Byte], Seq[(String, Long)]) = {
    val name = ChangelogName(0, partition, "default", batch + 1, s"$kind$runs-$segments")
    val content = random.nextBytes(random.nextInt(200))
    val cut = random.nextInt(content.length + 1)
    val parts = if (random.nextBoolean()) Seq(content) else Seq(content.take(cut), content.drop(cut))
    val pieces = parts.zipWithIndex.map { case (bytes, number) =>
      write(name, bytes, number, if (number + 1 == parts.length) parts.length else 0)
    }
    (IndexEntry(name, content.length.toLong, pieces.map(_._1).toVector), content, pieces.map(_._2))
  }

  private def write(name: ChangelogName, bytes: Array[Byte], number: Int, pieces: Int) = {
    val segment = ObjectNames.segment(f"run$runs%05d", "1", segments)
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
    val reader = newReader()
    val listed = (0 until 4).flatMap(partition => reader.directory(s"0/$partition")).map(_.name)
    val old = listed.filter(_.version < oldest).toSet
    // While a roll-up is lost Spark does not see, and does not delete, what it named.
    if (everything) equal(model.keySet.filter(_.version < oldest) -- old, Set.empty[ChangelogName])
    history :+= s"maintain@$oldest"
    model --= old
    floors ++= (0 until 4).filter(_ => everything || random.nextInt(4) > 0).map { partition =>
      s"0/$partition" -> oldest
    }
  }

  private def loseRollUp(): Unit = stored.rollUps().lastOption.foreach { first =>
    history :+= s"lose@$first"
    val file = root.rollUp(first)
    if (random.nextBoolean()) stored.deleteRollUp(first)
    else files.write(file, files.read(file).updated(20, '?'.toByte), overwrite = true)
    restart()
  }

  def readAll(): Unit = {
    val readers = if (random.nextInt(4) == 0) Seq(newReader(), old) else Seq(newReader())
    for (reader <- readers; (name, content) <- model) {
      equal(read(name, reader).toVector, content)
    }
  }

  def read(name: ChangelogName): Array[Byte] = read(name, newReader())

  private def read(name: ChangelogName, reader: IndexReader): Array[Byte] = {
    def again = reader.findAgain(name).orElse(reader.search(name))
    val entry = reader.find(name, fresh = true).orElse(again).getOrElse {
      throw new AssertionError(
        s"${name.path} is not found; roll-ups ${stored.rollUps()}, commits ${stored.commits()}, " +
          s"${stored.segments().length} segments, history ${history.mkString(" ")}")
    }
    val cache = new SegmentCache(1 << 20)
    new ChangelogInput(root, entry, files, reader.length, cache, reader.findAgain).readAllBytes()
  }

  /** Only segments with a changelog that Spark needs are left. */
  private def census(): Unit = {
    val reader = newReader()
    val segments = model.keys.flatMap(name => reader.find(name, fresh = true)).flatMap(_.pieces)
    val apart = segments.map(_.segment).filterNot(ObjectNames.isInCommit)
    equal(stored.segments().map(_._1).toSet, apart.toSet)
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
