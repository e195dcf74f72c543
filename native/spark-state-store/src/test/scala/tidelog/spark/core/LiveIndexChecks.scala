package tidelog.spark.core

import scala.util.Random

import tidelog.spark.driver.{LiveIndex, SegmentUse, Sweep}
import tidelog.spark.Checks
import tidelog.spark.format.{ChangelogName, FooterEntry, IndexEntry, Piece}
import tidelog.spark.Checks.equal

final class LiveIndexChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("a segment is dead exactly when no batch needs it and none still can") {
      (0 until 200).foreach(seed => new RandomIndex(new Random(seed)).run())
    }
    checks.check("a query that is set back takes later batches with it") {
      val index = (0L to 25L).foldLeft(LiveIndex())((index, batch) => publish(index, batch))
      val back = publish(index.withRollUp(0).withRollUp(10), 12, "again")
      equal(back.committed, 12L)
      equal(back.batches.keySet.max, 12L)
      equal(back.rolledUp, Set(0L))
      equal(back.segments("b20").live, 0)
      equal(back.deadSegments, Set.empty[String])
    }
    checks.check("a window is due when it is committed and dead when nothing in it is needed") {
      val index = (0L to 10L).foldLeft(LiveIndex())((index, batch) => publish(index, batch))
      equal(index.dueWindows, Vector(0L))
      val rolled = index.withRollUp(0)
      equal((rolled.dueWindows, rolled.deadWindows), (Vector.empty, Set.empty[Long]))
      equal(rolled.expire(Map("0/0" -> 10L)).deadWindows, Set.empty[Long])
      equal(rolled.expire(Map("0/0" -> 11L)).deadWindows, Set(0L))
    }
    checks.check("a commit file is the only index of its batch until the roll-up is stored") {
      val index = publish(LiveIndex(), 3)
      equal(index.onlyIndexOf(3), true)
      equal(index.withRollUp(0).onlyIndexOf(3), false)
      equal(index.expire(Map("0/0" -> 4L, "0/1" -> 9L)).onlyIndexOf(3), true)
      equal(index.expire(Map("0/0" -> 5L)).onlyIndexOf(3), false)
    }
    checks.check("what lies in a commit is no segment until it has moved into one") {
      val entry = IndexEntry(name(3), 10, Vector(Piece("commits/3", 44, 60)))
      val index = LiveIndex().stored("commits/3", 100, 0).publish(3, Seq(entry))
      equal((index.segments, index.inCommits(0)), (Map.empty[String, SegmentUse], Vector(entry)))
      val apart = entry.copy(pieces = Vector(Piece("s", 44, 60)))
      val moved = index.stored("s", 100, 0).moved(Vector(apart))
      equal((moved.inCommits(0), moved.segments), (Vector.empty, Map("s" -> SegmentUse(100, 0, 1))))
      equal(moved.document(0, 9).entries, Vector(apart))
    }
    sweep()
  }

  private def sweep(): Unit = {
    val index = publish(publish(LiveIndex(), 4), 5)
    def footer(names: ChangelogName*) = names.map(FooterEntry(_, 44, 60, 0, 1))
    val other = name(5).copy(id = "lost")
    checks.check("the sweep keeps a segment with a changelog that a commit names") {
      equal(Sweep.isGarbage("b5", footer(other, name(5)), index, _ => true), false)
    }
    checks.check("the sweep takes a segment whose changelogs the index has elsewhere") {
      equal(Sweep.isGarbage("moved", footer(name(5)), index, _ => true), true)
    }
    checks.check("the sweep takes a segment of attempts that lost or never were committed") {
      equal(Sweep.isGarbage("b5", footer(other), index, _ => true), true)
      equal(Sweep.isGarbage("b5", footer(name(6)), index, _ => false), true)
    }
    checks.check("the sweep keeps what belongs to a batch whose index it does not know") {
      equal(Sweep.isGarbage("b5", footer(other), index, _ == 4), false)
    }
  }

  private def name(batch: Long, id: String = "id") = ChangelogName(0, 0, "default", batch + 1, id)

  private def publish(index: LiveIndex, batch: Long, id: String = "id"): LiveIndex = index
    .stored(s"b$batch", 100, batch + 1)
    .publish(batch, Seq(IndexEntry(name(batch, id), 10, Vector(Piece(s"b$batch", 44, 60)))))
}

/** A random life of an index, compared with a model that counts everything anew at each step. */
private final class RandomIndex(random: Random) {
  private var index = LiveIndex()
  private var stored = Map.empty[String, Long]
  private var live = Map.empty[ChangelogName, IndexEntry]
  private var batch = 0L

  def run(): Unit = (0 until 60).foreach { _ =>
    if (random.nextInt(3) > 0) commit() else expire()
    compare()
    if (random.nextBoolean()) forget()
  }

  private def commit(): Unit = {
    val segments = (0 to random.nextInt(3)).map(number => s"s$batch-$number")
    segments.foreach { segment =>
      stored += segment -> (batch + 1)
      index = index.stored(segment, 100, batch + 1)
    }
    val entries = (0 until random.nextInt(5)).map { partition =>
      val places = Seq.fill(1 + random.nextInt(2))(segments(random.nextInt(segments.length)))
      IndexEntry(
        ChangelogName(0, partition, "default", batch + 1, s"$batch-$partition"),
        10,
        places.map(Piece(_, 44, 60)).toVector)
    }
    live ++= entries.map(entry => entry.name -> entry)
    index = index.publish(batch, entries)
    batch += 1
  }

  private def expire(): Unit = {
    val floors = random.shuffle((0 until 4).toVector).take(random.nextInt(3)).map { partition =>
      s"0/$partition" -> random.nextInt(batch.toInt + 2).toLong
    }.toMap
    live = live.filterNot { case (name, _) => floors.get(name.directory).exists(name.version < _) }
    index = index.expire(floors)
  }

  private def forget(): Unit = {
    val dead = index.deadSegments
    index = index.withoutSegments(dead)
    stored --= dead
  }

  private def compare(): Unit = {
    val needed = live.values.flatMap(_.pieces.map(_.segment)).toSet
    equal(index.deadSegments, stored.keySet -- needed)
    index.segments.foreach { case (segment, use) =>
      equal(use.live, live.values.map(_.pieces.count(_.segment == segment)).sum)
    }
    val document = index.document(0, batch)
    equal(document.entries.map(_.name).toSet, live.keySet)
    equal(document.segments.keySet, needed)
  }
}
