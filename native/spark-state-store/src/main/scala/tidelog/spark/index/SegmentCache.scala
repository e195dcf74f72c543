package tidelog.spark.index

import java.io.EOFException
import java.util.concurrent.{CompletableFuture, ExecutionException}
import java.util.concurrent.atomic.LongAdder

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import tidelog.spark.layout.PathKind
import tidelog.spark.storage.AtomicFiles

/** Whole segments in memory, for the partitions of an executor that restore side by side: each of
  * them needs a few hundred bytes of the same objects. A segment in a commit is known by the path
  * of the commit, which is another one when its batch runs again: then its blocks do not fit, and
  * whoever sees that forgets it.
  *
  * Invariants: a segment is read once however many ask for it at the same time; at most `limit`
  * bytes stay, the longest unused leave first; a failed reading is not remembered; what is read
  * ahead takes at most a quarter of the room.
  */
final class SegmentCache(limit: Long) {
  private val segments =
    new java.util.LinkedHashMap[Path, CompletableFuture[Array[Byte]]](16, 0.75f, true)
  private var size = 0L
  private val answered = new LongAdder
  private val fetched = new LongAdder

  /** Readings of stores that found their segment here or on its way. */
  def hits: Long = answered.sum

  /** Those that had to ask the store themselves. */
  def misses: Long = fetched.sum

  /** Bytes of the segments that are here. */
  def bytes: Long = synchronized(size)

  /** Bytes [offset, offset + length) of a segment whose object has `total` bytes, if known.
    *
    * @param counted whether it is a store's reading, and not one of house-keeping
    */
  def read(
      files: AtomicFiles,
      path: Path,
      total: Option[Long],
      offset: Long,
      length: Int,
      counted: Boolean = true): Array[Byte] =
    total.filter(fits).orElse(Option.when(inCommit(path))(0L)) match {
      case Some(bytes) => slice(whole(files, path, bytes.toInt, counted), offset, length)
      case None =>
        if (counted) fetched.increment()
        files.read(path, offset, length)
    }

  /** Whether a segment is here or on its way. */
  def contains(path: Path): Boolean = synchronized(segments.containsKey(path))

  /** Starts to read segments, given with their lengths, that will be needed soon. */
  def prefetch(files: AtomicFiles, soon: Iterator[(Path, Long)]): Unit = {
    var room = limit / 4
    soon.takeWhile { case (_, bytes) => room -= bytes; room >= 0 }.foreach { case (path, bytes) =>
      val fresh = new CompletableFuture[Array[Byte]]
      val known = synchronized(Option(segments.putIfAbsent(path, fresh)))
      if (known.isEmpty) Reads.later(fill(fresh, files, path, bytes.toInt))
    }
  }

  private def fits(bytes: Long): Boolean = bytes <= limit / 4

  /** Keeps a segment that this JVM has stored, in place of what it has known of the object. */
  def keep(path: Path, bytes: Array[Byte]): Unit = synchronized {
    forget(path)
    if (segments.putIfAbsent(path, CompletableFuture.completedFuture(bytes)) == null) {
      size += bytes.length
      evict()
    }
  }

  /** Forgets a segment, so that the next reading asks the store. */
  def forget(path: Path): Unit = synchronized {
    Option(segments.get(path)).filter(_.isDone).foreach { bytes =>
      segments.remove(path)
      if (!bytes.isCompletedExceptionally) size -= bytes.join().length
    }
  }

  private def slice(segment: Array[Byte], offset: Long, length: Int): Array[Byte] = {
    // Short when the index is wrong; the block's reader says so.
    val from = offset.min(segment.length.toLong).toInt
    java.util.Arrays.copyOfRange(segment, from, (from.toLong + length).min(segment.length).toInt)
  }

  private def whole(
      files: AtomicFiles,
      path: Path,
      bytes: Int,
      counted: Boolean): Array[Byte] = {
    val fresh = new CompletableFuture[Array[Byte]]
    val known = synchronized(Option(segments.putIfAbsent(path, fresh)))
    known.foreach(_ => synchronized(segments.get(path)))
    if (counted) (if (known.isEmpty) fetched else answered).increment()
    if (known.isEmpty) fill(fresh, files, path, bytes)
    try known.getOrElse(fresh).get()
    catch {
      case error: ExecutionException if known.isEmpty => throw error.getCause
      // Another task's reading, which ends with that task.
      case _: ExecutionException => fetch(files, path, bytes)
    }
  }

  private def inCommit(path: Path): Boolean = PathKind.of(path) match {
    case _: PathKind.Commit => true
    case _ => false
  }

  private def fetch(files: AtomicFiles, path: Path, bytes: Int): Array[Byte] =
    if (inCommit(path)) {
      CommitFile.segment(files.read(path), path.toString).getOrElse(throw new EOFException)
    } else files.read(path, 0, bytes) // with its length an object store needs one request for it

  private def fill(
      target: CompletableFuture[Array[Byte]],
      files: AtomicFiles,
      path: Path,
      bytes: Int): Unit =
    try {
      val found = fetch(files, path, bytes)
      target.complete(found)
      synchronized {
        size += found.length
        evict()
      }
    } catch {
      case error: Throwable => // or those that wait for it wait for ever
        synchronized(segments.remove(path))
        target.completeExceptionally(error)
    }

  private def evict(): Unit = {
    val oldest = segments.entrySet.asScala.iterator.filter(_.getValue.isDone).toVector
    oldest.takeWhile(_ => size > limit).foreach { entry =>
      size -= entry.getValue.join().length
      segments.remove(entry.getKey)
    }
  }
}

object SegmentCache {
  private val DefaultBytes = 64L << 20
  @volatile private var cache = new SegmentCache(DefaultBytes)

  /** The cache of this JVM. */
  def shared: SegmentCache = cache

  private[spark] def resize(bytes: Long): Unit = cache = new SegmentCache(bytes)
}
