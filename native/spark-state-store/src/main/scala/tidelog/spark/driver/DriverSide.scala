package tidelog.spark.driver

import java.util.concurrent.{ExecutorService, TimeUnit}

import com.codahale.metrics.MetricRegistry
import org.apache.spark.internal.Logging

import tidelog.spark.Settings
import tidelog.spark.index.NamedId
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Figures, Message, OfRun, Part}
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.{SegmentNames, SegmentUpload}

/** A run of a streaming query, as the thread that runs it knows it.
  *
  * @param query Spark's id of the query
  * @param run Spark's id of the run
  */
final case class QueryRun(query: Option[String], run: Option[String])

/** The plug-in in the driver: receives from executors and keeps the barriers.
  *
  * Invariants: `receive` never blocks on a store, because all executors wait in one line for it;
  * nothing that concerns stored files is remembered of a checkpoint from one run of its query to
  * the next, and nothing at all when the last run that is known to use it has ended.
  *
  * @param calling the run whose thread calls
  */
final class DriverSide(
    startMs: Long,
    settings: Settings,
    registry: MetricRegistry,
    calling: () => QueryRun)
    extends Logging {
  private val held = new HeldBytes(settings.inFlightBytes)
  private val sums = new ExecutorSums
  private val metrics = new DriverMetrics(registry, sums, () => held.bytes)
  private val services = PackerServices(
    SegmentNames("driver", startMs), settings.segmentBytes, settings.commitBytes, held,
    new SegmentUpload(settings.uploadDeadlineMs, metrics.uploads))

  /** What the committed batches were made of. */
  val reports = new BatchReports

  private var checkpoints = Map.empty[CheckpointRoot, CheckpointState]
  // House-keeping that goes on after its run; the next one waits for it.
  private var closing = Map.empty[CheckpointRoot, ExecutorService]
  private var ended = Vector.empty[String]

  def receive(message: Message): AnyRef = message match {
    case Figures(executor, figures) =>
      sums.report(executor, figures)
      Answer.Received
    case message: OfRun => synchronized(of(message))
  }

  /** Spark has removed an executor. */
  def executorRemoved(executor: String): Unit = sums.removed(executor)

  /** A run has ended: what is known of its checkpoints goes, if no other run uses them. */
  def runEnded(run: String): Unit = synchronized {
    ended = (ended :+ run).takeRight(DriverSide.EndedKept)
    val over = checkpoints.filter { case (_, state) => state.runs == Set(run) }
    checkpoints.values.foreach(_.runs -= run)
    checkpoints --= over.keys
    closing = closing.filterNot(_._2.isTerminated) ++ over.flatMap { case (root, state) =>
      state.close(held).map(root -> _)
    }
  }

  /** The checkpoints of which something is known. */
  def known: Set[CheckpointRoot] = synchronized(checkpoints.keySet)

  /** The barrier of one batch of a checkpoint. */
  def barrier(root: CheckpointRoot, batch: Long, files: AtomicFiles): CommitBarrier =
    new CommitBarrier {
      private val (log, keeping) = synchronized {
        val state = begin(root, files)
        (open(root, state, files), state.keeping)
      }

      override def gather(ids: Vector[NamedId]): Gathered =
        try log.gather(batch, ids, new StoredElsewhere(root, files))
        catch {
          // A query that is stopped meanwhile has not failed.
          case error: Throwable if !error.isInstanceOf[InterruptedException] =>
            metrics.barrierFailures.inc()
            throw error
        }

      override def published(gathered: Gathered, indexBytes: Long): Unit = {
        metrics.committed(gathered, indexBytes)
        reports.add(BatchReport(calling().query, root, gathered, indexBytes, keeping.take()))
        logInfo(describe(root, batch, gathered))
        log.committed(batch, gathered)
      }
    }

  /** Takes the deletion of a commit upon itself, unless the query is known to have no state. Before
    * this driver's first commit nobody knows whether the file holds the only index of its batch.
    */
  def takesDeletion(root: CheckpointRoot, batch: Long, files: AtomicFiles): Boolean = synchronized {
    val state = begin(root, files)
    state.log match {
      case _ if state.stateless => ()
      case Some(log) => log.deleteCommit(batch)
      case None => state.deletions :+= batch
    }
    !state.stateless
  }

  /** A query without state has committed: the commits whose deletion has waited for this. */
  def committedWithoutState(root: CheckpointRoot, files: AtomicFiles): Vector[Long] = synchronized {
    val state = begin(root, files)
    state.stateless = state.log.isEmpty
    val waiting = state.deletions
    state.deletions = Vector.empty
    waiting
  }

  /** Ends when the house-keeping of all published commits is done, or after half a minute. */
  def shutdown(): Unit = {
    val open = synchronized(checkpoints.values.flatMap(_.close(held)) ++ closing.values)
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DriverSide.HousekeepingSeconds)
    open.foreach { housekeeping =>
      housekeeping.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)
    }
  }

  private def of(message: OfRun): AnyRef =
    // A task that outlives its run: nobody will commit what it says.
    if (ended.contains(message.run)) Answer.Received
    else {
      val state = stateOf(CheckpointRoot(message.root))
      state.runs += message.run
      message match {
        case part: Part if !held.take(part.bytes.length.toLong) =>
          metrics.partsRefused.inc()
          Answer.Full
        case part: Part =>
          metrics.parts.inc()
          state.deliver(part)
          Answer.Received
        case other =>
          state.deliver(other)
          Answer.Received
      }
    }

  private def stateOf(root: CheckpointRoot): CheckpointState = checkpoints.getOrElse(root, {
    val state = new CheckpointState(new HouseKeeping(metrics))
    checkpoints += root -> state
    state
  })

  /** Starts afresh when a run of a query begins. Every run has a commit log of its own, with a file
    * manager of its own; the directory may be another checkpoint's since the last one.
    */
  private def begin(root: CheckpointRoot, files: AtomicFiles): CheckpointState = {
    val state = stateOf(root)
    if (!state.files.exists(_ eq files)) {
      if (state.files.isDefined) state.restarted(files)
      state.files = Some(files)
    }
    // Changelogs name their run; in the query's thread its user may have set another job group.
    if (state.runs.isEmpty) calling().run.foreach(run => state.runs += run)
    state
  }

  private def open(root: CheckpointRoot, state: CheckpointState, files: AtomicFiles) =
    state.log.getOrElse {
      val log = new CheckpointLog(
        root, settings.barrierTimeoutMs, settings.uploadThreads, services, state.keeping, files,
        closing.get(root))
      state.open(log)
      log
    }

  private def describe(root: CheckpointRoot, batch: Long, gathered: Gathered): String = {
    val index = gathered.index
    val bytes = index.entries.map(_.bytes).sum
    s"tidelog: batch $batch of $root: ${index.entries.length} changelogs of $bytes bytes in " +
      s"${index.apart.size} segments and the commit, the barrier waited ${gathered.waitedMs} ms"
  }
}

object DriverSide {
  private val HousekeepingSeconds = 30L

  /** Late messages of a run come within seconds. */
  private val EndedKept = 1000
  @volatile private var side: Option[DriverSide] = None

  /** The plug-in of this JVM, if it is the driver of an application that has it. */
  def current: Option[DriverSide] = side

  private[spark] def set(running: Option[DriverSide]): Unit = side = running
}
