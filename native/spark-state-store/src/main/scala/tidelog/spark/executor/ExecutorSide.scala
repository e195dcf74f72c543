package tidelog.spark.executor

import java.util.concurrent.{ConcurrentHashMap, Executors}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging

import tidelog.spark.{DaemonThreads, Settings}
import tidelog.spark.format.ChangelogName
import tidelog.spark.index.IndexReaders
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Deleted, Message, Poll}
import tidelog.spark.storage.AtomicFiles

/** The run of a query that writes a checkpoint: Spark's id of the run, and that of the query if it
  * is known.
  */
final case class Writer(run: String, query: Option[String])

/** The plug-in in an executor's JVM: one segment log per checkpoint, one line to the driver.
  *
  * Invariants: `ask` reaches the driver this JVM belongs to, or throws; nothing that was said of a
  * checkpoint before a run of its query began is reported to the driver after that.
  */
final class ExecutorSide(
    author: Author,
    val settings: Settings,
    context: PluginContext)
    extends Logging {
  private val metrics = new ExecutorMetrics(context.metricRegistry)
  private val inFlight = new InFlightBytes(settings.inFlightBytes)
  private val logs = new ConcurrentHashMap[CheckpointRoot, SegmentLog]
  private val writers = new ConcurrentHashMap[CheckpointRoot, Writer]
  private val tasks = new RunningTasks(idle)
  private val tombstones = new Tombstones
  private val services = new LogServices(
    author = author,
    policy = FlushPolicy(settings.segmentBytes, settings.lingerMs, settings.maxAgeMs),
    pieceBytes = settings.pieceBytes,
    inFlight = inFlight,
    uploads = new Uploads(settings.uploadThreads, settings.uploadDeadlineMs, metrics),
    timer = Executors.newSingleThreadScheduledExecutor(DaemonThreads("tidelog-flush")),
    counter = new AtomicLong,
    metrics = metrics,
    report = ask(_))
  private val line = new Thread(() => talk(), "tidelog-driver-line")

  metrics.watch(inFlight)

  def start(): Unit = {
    // The driver must know this executor before its first task hands anything over.
    ask(Poll(author.executor, Map.empty, metrics.figures))
    line.setDaemon(true)
    line.start()
  }

  def shutdown(): Unit = {
    line.interrupt()
    services.timer.shutdownNow()
    services.uploads.shutdown()
  }

  /** The segment log of a checkpoint, for a run of the query that writes it. */
  def log(root: CheckpointRoot, writer: Writer, files: => AtomicFiles): SegmentLog = {
    writers.compute(root, (_, before) =>
      if (before == null || before.run != writer.run) begin(root, writer, files)
      else Writer(before.run, before.query.orElse(writer.query)))
    logs.computeIfAbsent(
      root,
      _ => new SegmentLog(root, files, services, () => pace(root), IndexReaders.learn(root)))
  }

  /** Notes that Spark has no more use of a changelog. */
  def delete(root: CheckpointRoot, writer: Writer, name: ChangelogName): Unit = {
    val now = writers.get(root)
    // The maintenance of an earlier run knows nothing of the checkpoint that is there now.
    if (now == null || now.run == writer.run) tombstones.add(root, name)
  }

  /** A task starts in this thread. */
  def taskStarted(): Unit = Option(TaskContext.get()).foreach(tasks.started)

  private def begin(root: CheckpointRoot, writer: Writer, files: AtomicFiles): Writer = {
    tombstones.forget(root)
    // Somebody may have removed the directory since the last run.
    files.prepare(root.segments)
    writer
  }

  private def pace(root: CheckpointRoot): TaskPace =
    tasks.of(Option(writers.get(root)).flatMap(_.query))

  private def idle(query: String): Unit = writers.asScala.foreach { case (root, writer) =>
    if (writer.query.contains(query)) Option(logs.get(root)).foreach(_.reconsider())
  }

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
      val barriers = Answer.barriers(ask(Poll(author.executor, acknowledged, newFigures())))
      barriers.foreach { case (root, ticket) => flush(root, ticket) }
      barriers
    } catch {
      case NonFatal(error) =>
        logWarning("tidelog: the driver does not answer", error)
        Thread.sleep(SlowPollMs)
        Map.empty
    }

  private var figuresAtMs = 0L

  private def newFigures(): Map[String, Long] = {
    val due = RunningTasks.nowMs - figuresAtMs >= FiguresMs
    if (due) figuresAtMs = RunningTasks.nowMs
    if (due) metrics.figures else Map.empty
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
  private val FiguresMs = 2000L
}

object ExecutorSide {
  @volatile private var side: Option[ExecutorSide] = None

  /** The plug-in of this JVM, if it is an executor of an application that has it. */
  def current: Option[ExecutorSide] = side

  private[spark] def set(running: Option[ExecutorSide]): Unit = side = running
}
