package tidelog.spark.executor

import java.util.concurrent.{Executors, ThreadPoolExecutor, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.api.plugin.PluginContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.state.RocksDB

import tidelog.spark.{DaemonThreads, Settings}
import tidelog.spark.driver.DriverSide
import tidelog.spark.format.ChangelogName
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Figures, Message}
import tidelog.spark.snapshot.SnapshotStatus
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.{SegmentNames, SegmentUpload}

/** The plug-in in an executor's JVM.
  *
  * Invariants: `ask` reaches the driver this JVM belongs to, or throws; it keeps nothing of a task
  * that has ended, but the maintenance of its store.
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
  private val maintenance = DaemonThreads.pool("tidelog-maintenance", most = 2)
  // Of a task that outlives the executor.
  maintenance.setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy)
  private val reporter =
    Executors.newSingleThreadScheduledExecutor(DaemonThreads("tidelog-driver-line"))

  def start(): Unit = reporter.scheduleWithFixedDelay(
    () => attempt("the driver does not answer")(ask(Figures(names.executor, metrics.figures))),
    0, ExecutorSide.FiguresMs, TimeUnit.MILLISECONDS)

  /** Ends when the maintenance that has begun is done, or after half a minute. */
  def shutdown(): Unit = {
    maintenance.shutdown()
    if (!maintenance.awaitTermination(ExecutorSide.MaintenanceSeconds, TimeUnit.SECONDS)) {
      logWarning("tidelog: snapshots were not uploaded before the end; the next run takes them again")
    }
    reporter.shutdownNow()
    pool.shutdownNow()
  }

  /** The stream for a changelog that a task of this run writes.
    *
    * @param snapshots those of its store
    */
  def create(
      root: CheckpointRoot,
      run: String,
      files: AtomicFiles,
      name: ChangelogName,
      snapshots: SnapshotStatus): CancellableFSDataOutputStream =
    new ChangelogStream(new ChangelogSink(root, run, name, snapshots, files, this))

  /** When the task has ended, uploads the store's snapshot and deletes what is old then, as Spark's
    * maintenance would do it later. The two may meet: each snapshot is uploaded by one of them.
    */
  def maintainAfter(task: TaskContext, store: RocksDB): Unit =
    task.addTaskCompletionListener[Unit] { _ =>
      maintenance.execute(() => attempt("a snapshot was not uploaded")(store.doMaintenance()))
    }

  /** The driver's answer; a driver in this JVM (local mode) is asked without a message. */
  private[executor] def ask(message: Message): AnyRef =
    DriverSide.current.fold(context.ask(message))(_.receive(message))

  private def attempt(failure: String)(work: => Unit): Unit =
    try work
    catch { case NonFatal(error) => logWarning(s"tidelog: $failure", error) }
}

object ExecutorSide {
  private val MaintenanceSeconds = 30L
  private val FiguresMs = 2000L

  @volatile private var side: Option[ExecutorSide] = None

  /** The plug-in of this JVM, if it is an executor of an application that has it. */
  def current: Option[ExecutorSide] = side

  private[spark] def set(running: Option[ExecutorSide]): Unit = side = running
}
