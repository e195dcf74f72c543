package tidelog.benchmark

import java.lang.management.ManagementFactory
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.LongAdder

import scala.jdk.CollectionConverters._

import com.sun.management.OperatingSystemMXBean
import org.apache.hadoop.fs.Path

/** The requests to `counted://` of this JVM, by what they ask for and by the class of the file.
  *
  * Invariant: a mark holds everything counted before the PUT of `commits/N` was answered, so the
  * difference of two marks is exactly the batches between them, plus what ran at the same time.
  */
object Requests {
  private final class Sum {
    val count = new LongAdder
    val bytes = new LongAdder
  }

  private final case class Mark(requests: String, cpuMs: Long)

  private val sums = new ConcurrentHashMap[String, Sum]
  private val marks = new ConcurrentHashMap[Long, Mark]
  private val system =
    ManagementFactory.getPlatformMXBean(classOf[OperatingSystemMXBean])
  private val news = new Object

  def add(kind: String, path: Path): Unit = sum(kind, path).count.increment()

  def addBytes(kind: String, path: Path, bytes: Long): Unit = sum(kind, path).bytes.add(bytes)

  /** The batch of a commit file is committed. */
  def committed(batch: Long): Unit = {
    marks.put(batch, Mark(now(), system.getProcessCpuTime / 1000000))
    news.synchronized(news.notifyAll())
  }

  /** Forgets which batches were committed: the next query counts them anew. */
  def forgetCommits(): Unit = marks.clear()

  /** All requests of this JVM until a batch was committed; a line per kind and class of file:
    * `kind class count bytes`.
    */
  def at(batch: Long): String = marks.get(batch).requests

  /** Milliseconds of processor time this JVM had taken by then. */
  def cpuMsAt(batch: Long): Long = marks.get(batch).cpuMs

  /** Whether the batch is committed; waits for it, at most `timeoutMs`. */
  def awaitCommit(batch: Long, timeoutMs: Long): Boolean = news.synchronized {
    val end = System.nanoTime() + timeoutMs * 1000000
    while (!marks.containsKey(batch) && System.nanoTime() < end) {
      news.wait(((end - System.nanoTime()) / 1000000).max(1))
    }
    marks.containsKey(batch)
  }

  /** All requests of this JVM so far, in the same form. */
  def now(): String =
    sums.asScala.toSeq.sortBy(_._1)
      .map { case (key, sum) => s"$key ${sum.count.sum} ${sum.bytes.sum}" }
      .mkString("\n")

  private def sum(kind: String, path: Path): Sum =
    sums.computeIfAbsent(s"$kind ${FileClass.of(path)}", _ => new Sum)
}

/** What a file of a checkpoint is for. */
object FileClass {
  private val ByEnding = Seq(
    ".crc" -> "checksum",
    ".changelog" -> "changelog",
    ".zip" -> "zip",
    ".sst" -> "sst",
    ".seg" -> "segment")
  private val ByDirectory = Seq(
    "/_tidelog/segments" -> "segment",
    "/_tidelog/index" -> "roll-up",
    "/commits" -> "commits",
    "/offsets" -> "offsets",
    "/state/" -> "state")

  def of(path: Path): String = {
    val text = path.toUri.getPath
    // A temporary file counts as what it becomes: `.5.changelog.<uuid>.TID7.tmp`.
    val name = text.replaceFirst("\\.[0-9a-f-]{36}(\\.TID\\d+)?\\.tmp$", "")
    ByEnding.collectFirst { case (ending, known) if name.endsWith(ending) => known }
      .orElse(ByDirectory.collectFirst { case (part, known) if text.contains(part) => known })
      .getOrElse("other")
  }
}
