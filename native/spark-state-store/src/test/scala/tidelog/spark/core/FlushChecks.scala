package tidelog.spark.core

import java.util.concurrent.{CountDownLatch, TimeUnit}

import tidelog.spark.executor.{Filling, FlushPolicy, InFlightBytes, PendingChangelog}
import tidelog.spark.Checks
import tidelog.spark.format.{ChangelogName, IndexEntry, Piece}
import tidelog.spark.Checks.equal

final class FlushChecks(checks: Checks) {
  private val policy = FlushPolicy(segmentBytes = 100, lingerMs = 10, maxAgeMs = 1000)

  def run(): Unit = {
    checks.check("a full segment leaves at once") {
      equal(policy.startsIn(Filling(3, 100, firstMs = 0, lastMs = 0), nowMs = 0), 0L)
    }
    checks.check("a segment waits for open changelogs, but not beyond its age") {
      equal(policy.startsIn(Filling(1, 5, firstMs = 0, lastMs = 0), nowMs = 400), 600L)
      equal(policy.startsIn(Filling(1, 5, firstMs = 0, lastMs = 990), nowMs = 1000) <= 0, true)
    }
    checks.check("a segment without open changelogs leaves after the linger") {
      equal(policy.startsIn(Filling(0, 5, firstMs = 0, lastMs = 95), nowMs = 100), 5L)
      equal(policy.startsIn(Filling(0, 5, firstMs = 0, lastMs = 90), nowMs = 100) <= 0, true)
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
