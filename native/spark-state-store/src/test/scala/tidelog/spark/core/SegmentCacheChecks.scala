package tidelog.spark.core

import java.io.IOException
import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.concurrent.TrieMap
import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration.DurationInt
import scala.util.Try

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.index.SegmentCache
import tidelog.spark.storage.AtomicFiles

final class SegmentCacheChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("a segment is read once, ahead or by the task that needs it first") {
      val files = new CountedFiles
      val cache = new SegmentCache(400)
      cache.prefetch(files, Iterator(path(1) -> 20L, path(2) -> 20L))
      Seq(1, 2, 1, 2, 3, 3).foreach(number => equal(read(cache, files, number).toSeq, content(number)))
      equal(files.reads.toMap.map { case (file, count) => file -> count.get },
        Map(path(1) -> 1, path(2) -> 1, path(3) -> 1))
      equal((cache.hits, cache.misses), (5L, 1L))
    }
    checks.check("a reading of house-keeping is none of a store's") {
      val cache = new SegmentCache(400)
      (1 to 3).foreach(_ =>
        cache.read(new CountedFiles, path(1), Some(20L), 0, 20, counted = false))
      equal((cache.hits, cache.misses), (0L, 0L))
    }
    checks.check("what is read ahead takes at most a quarter of the room") {
      val files = new CountedFiles
      val cache = new SegmentCache(400)
      cache.prefetch(files, (1 to 50).iterator.map(number => path(number) -> 20L))
      equal((1 to 50).count(number => cache.contains(path(number))), 5)
    }
    checks.check("a segment that could not be read ahead is read again") {
      val files = new CountedFiles
      val cache = new SegmentCache(400)
      files.failures.set(1)
      cache.prefetch(files, Iterator(path(1) -> 20L))
      while (cache.contains(path(1))) Thread.`yield`()
      equal(read(cache, files, 1).toSeq, content(1))
    }
    checks.check("a task that waits for a reading that is interrupted reads by itself") {
      val cache = new SegmentCache(400)
      val begun = new CountDownLatch(1)
      val stuck = new CountedFiles {
        override def read(path: Path, offset: Long, length: Int): Array[Byte] = {
          begun.countDown()
          new CountDownLatch(1).await()
          super.read(path, offset, length)
        }
      }
      val killed = new Thread(() => Try(read(cache, stuck, 1)): Unit)
      killed.start()
      begun.await()
      val waiting = Future(read(cache, new CountedFiles, 1).toSeq)(ExecutionContext.global)
      while (cache.hits == 0) Thread.`yield`()
      killed.interrupt()
      equal(Await.result(waiting, 30.seconds), content(1))
    }
  }

  private def path(number: Int) = new Path(s"/segments/$number.seg")

  private def content(number: Int): Seq[Byte] = Seq.fill(20)(number.toByte)

  private def read(cache: SegmentCache, files: AtomicFiles, number: Int): Array[Byte] =
    cache.read(files, path(number), Some(20L), offset = 0, length = 20)
}

/** Segments that hold their own number, and how often each was read. */
private class CountedFiles extends AtomicFiles {
  val reads = TrieMap.empty[Path, AtomicInteger]
  val failures = new AtomicInteger

  override def read(path: Path, offset: Long, length: Int): Array[Byte] = {
    reads.getOrElseUpdate(path, new AtomicInteger).incrementAndGet()
    if (failures.getAndUpdate(left => (left - 1).max(0)) > 0) throw new IOException("not now")
    Array.fill(length)(path.getName.stripSuffix(".seg").toByte)
  }

  override def read(path: Path): Array[Byte] = unused
  override def exists(path: Path): Boolean = unused
  override def prepare(directory: Path): Unit = unused
  override def manager: CheckpointFileManager = unused
  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream = unused

  private def unused: Nothing = throw new UnsupportedOperationException
}
