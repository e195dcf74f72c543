package tidelog.spark.core

import java.util.concurrent.{CountDownLatch, TimeUnit}

import tidelog.spark.executor.{Filling, FlushPolicy, InFlightBytes, PendingChangelog, TaskPace}
import tidelog.spark.Checks
import tidelog.spark.format.{ChangelogName, IndexEntry, Piece}
import tidelog.spark.Checks.equal

final class FlushChecks(checks: Checks) {
  private val policy = FlushPolicy(segmentBytes = 100, lingerMs = 10, maxAgeMs = 1000)

  def run(): Unit = {
    checks.check("a full segment leaves at once") {
      equal(policy.startsIn(filling(3, TaskPace(), bytes = 100), nowMs = 0), 0L)
    }
    checks.check("a segment waits for open changelogs, but not beyond its age") {
      equal(policy.startsIn(filling(1, TaskPace()), nowMs = 400), 600L)
      equal(policy.startsIn(filling(1, TaskPace(), lastMs = 990), nowMs = 1000) <= 0, true)
    }
    checks.check("a segment without open changelogs leaves after the linger") {
      equal(policy.startsIn(filling(0, TaskPace(), lastMs = 95), nowMs = 100), 5L)
      equal(policy.startsIn(filling(0, TaskPace(), lastMs = 90), nowMs = 100) <= 0, true)
    }
    checks.check("a segment waits for tasks of its query that have no changelog open") {
      val busy = TaskPace().started(1, Some("7"), nowMs = 0).started(2, Some("7"), nowMs = 1)
      equal(policy.startsIn(filling(0, busy.ended(1, nowMs = 3)), nowMs = 400), 600L)
      val idle = busy.ended(1, nowMs = 3).ended(2, nowMs = 395)
      equal(policy.startsIn(filling(0, idle, lastMs = 90), nowMs = 400), 5L)
    }
    checks.check("the linger exceeds the pauses within a batch, not those between batches") {
      val first = TaskPace().started(1, Some("7"), nowMs = 0).ended(1, nowMs = 10)
      val paused = first.started(2, Some("7"), nowMs = 60).ended(2, nowMs = 70)
      equal(paused.lingerMs(10), 100L)
      equal(policy.startsIn(filling(0, paused, lastMs = 70), nowMs = 120), 50L)
      equal(first.started(2, Some("8"), nowMs = 900).lingerMs(10), 10L)
    }
    checks.check("a long pause is forgotten with the batches that have none") {
      val paused =
        TaskPace().started(1, Some("0"), 0).ended(1, 1).started(2, Some("0"), 401).ended(2, 402)
      val later = (1L to 20L).foldLeft(paused) { (pace, batch) =>
        pace.started(batch + 2, Some(s"$batch"), 1000 * batch).ended(batch + 2, 1000 * batch + 1)
      }
      equal(later.lingerMs(10), 10L)
    }
    checks.check("an end of a task that has not started changes nothing") {
      equal(TaskPace().ended(3, nowMs = 5), TaskPace())
    }
    checks.check("one that is larger than the limit may be in flight alone") {
      val room = new InFlightBytes(10)
      room.acquire(25)(full = ())
      equal(room.bytes, 25L)
    }
    checks.check("who finds no room has the waiting bytes sent and waits for them") {
      val room = new InFlightBytes(10)
      room.acquire(8)(full = throw new AssertionError("there was room"))
      val asked = new CountDownLatch(1)
      val waiter = new Thread(() => room.acquire(3)(full = asked.countDown()))
      waiter.start()
      equal(asked.await(30, TimeUnit.SECONDS), true)
      equal(room.bytes, 8L)
      room.release(8)
      waiter.join(30000)
      equal(room.bytes, 3L)
    }
    pending()
  }

  private def filling(open: Int, tasks: TaskPace, bytes: Long = 5, lastMs: Long = 0): Filling =
    Filling(open, tasks, bytes, firstMs = 0, lastMs = lastMs)

  private val name = ChangelogName(0, 1, "default", 7, "id")

  private def pending(): Unit = {
    checks.check("a changelog is complete when its last piece is handed over and all are stored") {
      val changelog = new PendingChangelog(name)
      val first = changelog.handOver(10, last = false)
      equal(changelog.stored(first, Piece("s1", 0, 50)), None)
      val second = changelog.handOver(5, last = true)
      val pieces = Vector(Piece("s1", 0, 50), Piece("s2", 44, 45))
      equal(changelog.stored(second, pieces(1)), Some(IndexEntry(name, 15, pieces)))
    }
    checks.check("pieces that are stored out of order keep their order") {
      val changelog = new PendingChangelog(name)
      val numbers = Seq(false, false, true).map(changelog.handOver(1, _))
      val pieces = numbers.map(number => Piece(s"s$number", 0, 41)).toVector
      equal(changelog.stored(2, pieces(2)), None)
      equal(changelog.stored(0, pieces(0)), None)
      equal(changelog.stored(1, pieces(1)), Some(IndexEntry(name, 3, pieces)))
    }
    checks.check("a changelog that lost a piece is never complete") {
      val changelog = new PendingChangelog(name)
      changelog.handOver(1, last = true)
      changelog.lose()
      equal(changelog.stored(0, Piece("s", 0, 41)), None)
    }
  }
}
