package tidelog.spark.executor

import java.util.concurrent.{Executors, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import tidelog.spark.{DaemonThreads, Settings}
import tidelog.spark.driver.DriverSide
import tidelog.spark.format.ChangelogName
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Figures, Message}
import tidelog.spark.snapshot.SnapshotTurn
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.{SegmentNames, SegmentUpload}

/** The plug-in in an executor's JVM.
  *
  * Invariants: `ask` reaches the driver this JVM belongs to, or throws; it keeps nothing of a task
  * that has ended, and of a query only deletions that the driver is told of at once.
  */
final class ExecutorSide(
    private[executor] val names: SegmentNames,
    val settings: Settings,
    context: PluginContext)
    extends Logging {
  private[executor] val metrics = new ExecutorMetrics(context.metricRegistry)
  private[executor] val uploads = new SegmentUpload(settings.uploadDeadlineMs, metrics.uploads)
  // As many as tasks have pieces on their way: a store that hangs keeps only its own query waiting.
  private[executor] val pool = Executors.newCachedThreadPool(DaemonThreads("tidelog-upload"))
  private val tombstones = new Tombstones
  private val reporter =
    Executors.newSingleThreadScheduledExecutor(DaemonThreads("tidelog-driver-line"))

  def start(): Unit = {
    def every(ms: Long)(work: => Unit) =
      reporter.scheduleWithFixedDelay(() => attempt(work), 0, ms, TimeUnit.MILLISECONDS)
    every(ExecutorSide.DeletionsMs)(tombstones.take().foreach(ask))
    every(ExecutorSide.FiguresMs)(ask(Figures(names.executor, metrics.figures)))
  }

  def shutdown(): Unit = {
    reporter.shutdownNow()
    pool.shutdownNow()
  }

  /** The stream for a changelog that a task of this run writes.
    *
    * @param turn whether its version comes with a snapshot
    */
  def create(
      root: CheckpointRoot,
      run: String,
      files: AtomicFiles,
      name: ChangelogName,
      turn: SnapshotTurn): CancellableFSDataOutputStream =
    new ChangelogStream(new ChangelogSink(root, run, name, turn, files, this))

  /** Notes that Spark has no more use of a changelog. */
  def delete(root: CheckpointRoot, run: String, name: ChangelogName): Unit =
    tombstones.add(root, run, name)

  /** The driver's answer; a driver in this JVM (local mode) is asked without a message. */
  private[executor] def ask(message: Message): AnyRef =
    DriverSide.current.fold(context.ask(message))(_.receive(message))

  private def attempt(work: => Unit): Unit =
    try work
    catch { case NonFatal(error) => logWarning("tidelog: the driver does not answer", error) }
}

object ExecutorSide {
  private val DeletionsMs = 500L
  private val FiguresMs = 2000L

  @volatile private var side: Option[ExecutorSide] = None

  /** The plug-in of this JVM, if it is an executor of an application that has it. */
  def current: Option[ExecutorSide] = side

  private[spark] def set(running: Option[ExecutorSide]): Unit = side = running
}
