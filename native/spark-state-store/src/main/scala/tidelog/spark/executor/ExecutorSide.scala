package tidelog.spark.executor

import java.util.concurrent.{ConcurrentHashMap, Executors}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging

import tidelog.spark.{DaemonThreads, Settings}
import tidelog.spark.format.ChangelogName
import tidelog.spark.index.IndexReaders
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Deleted, Message, Poll}
import tidelog.spark.storage.AtomicFiles

/** The plug-in in an executor's JVM: one segment log per checkpoint, one line to the driver.
  *
  * Invariant: `ask` reaches the driver this JVM belongs to, or throws.
  */
final class ExecutorSide(
    author: Author,
    val settings: Settings,
    context: PluginContext)
    extends Logging {
  private val metrics = new ExecutorMetrics(context.metricRegistry)
  private val inFlight = new InFlightBytes(settings.inFlightBytes)
  private val logs = new ConcurrentHashMap[CheckpointRoot, SegmentLog]
  private val tombstones = new Tombstones
  private val services = new LogServices(
    author = author,
    policy = FlushPolicy(settings.segmentBytes, settings.lingerMs, settings.maxAgeMs),
    pieceBytes = settings.pieceBytes,
    inFlight = inFlight,
    uploads = new Uploads(settings.uploadThreads, settings.uploadDeadlineMs, metrics),
    timer = Executors.newSingleThreadScheduledExecutor(DaemonThreads("tidelog-flush")),
    metrics = metrics,
    report = ask(_))
  private val line = new Thread(() => talk(), "tidelog-driver-line")

  metrics.watch(inFlight)

  def start(): Unit = {
    // The driver must know this executor before its first task hands anything over.
    ask(Poll(author.executor, Map.empty))
    line.setDaemon(true)
    line.start()
  }

  def shutdown(): Unit = {
    line.interrupt()
    services.timer.shutdownNow()
    services.uploads.shutdown()
  }

  def log(root: CheckpointRoot, files: => AtomicFiles): SegmentLog =
    logs.computeIfAbsent(
      root,
      _ => new SegmentLog(root, files, services, IndexReaders.of(root, files).learn))

  /** Notes that Spark has no more use of a changelog. */
  def delete(root: CheckpointRoot, name: ChangelogName): Unit = tombstones.add(root, name)

  /** Starts the upload of all that a waiting barrier needs, if this JVM has any of it. */
  def flush(root: String, ticket: Long): Unit =
    Option(logs.get(CheckpointRoot(root))).foreach(_.flush(ticket))

  private def talk(): Unit =
    try {
      while (true) {
        val seen = poll()
        // A barrier waits for our acknowledgement: no pause when there is one to give.
        if (!acknowledgements(seen).exists { case (root, ticket) => seen(root) == ticket }) {
          // A driver in this JVM (local mode) says itself that a barrier waits.
          val eager = author.executor != "driver" && (busy || seen.nonEmpty)
          Thread.sleep(if (eager) FastPollMs else SlowPollMs)
        }
      }
    } catch {
      case _: InterruptedException => logDebug("tidelog: the line to the driver is closed")
    }

  private var acknowledged = Map.empty[String, Long]

  private def poll(): Map[String, Long] =
    try {
      tombstones.take().foreach { case (root, names) =>
        ask(Deleted(author.executor, root.uri, names))
      }
      val barriers = Answer.barriers(ask(Poll(author.executor, acknowledged)))
      barriers.foreach { case (root, ticket) => flush(root, ticket) }
      barriers
    } catch {
      case NonFatal(error) =>
        logWarning("tidelog: the driver does not answer", error)
        Thread.sleep(SlowPollMs)
        Map.empty
    }

  /** Remembers, and returns the news of, what can be said about the barriers that wait. */
  private def acknowledgements(waiting: Map[String, Long]): Map[String, Long] = {
    val now = waiting.map { case (root, ticket) =>
      root -> Option(logs.get(CheckpointRoot(root))).fold(ticket)(_.acknowledged)
    }
    val news = now.filter { case (root, ticket) => !acknowledged.get(root).contains(ticket) }
    acknowledged = now
    news
  }

  private def busy: Boolean = logs.values.asScala.exists(_.busy)

  private def ask(message: Message): AnyRef = context.ask(message)

  private val FastPollMs = 5L
  private val SlowPollMs = 500L
}

object ExecutorSide {
  @volatile private var side: Option[ExecutorSide] = None

  /** The plug-in of this JVM, if it is an executor of an application that has it. */
  def current: Option[ExecutorSide] = side

  private[spark] def set(running: Option[ExecutorSide]): Unit = side = running
}
