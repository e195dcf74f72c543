package tidelog.spark.driver

import java.util.concurrent.{ConcurrentHashMap, Executors, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import com.codahale.metrics.MetricRegistry
import org.apache.spark.internal.Logging

import tidelog.spark.{DaemonThreads, Settings}
import tidelog.spark.executor.ExecutorSide
import tidelog.spark.index.{IndexFiles, NamedId}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Answer, Deleted, Message, Poll, SegmentDurable, UploadFailed}
import tidelog.spark.storage.AtomicFiles

/** The plug-in in the driver: receives from executors and keeps the barriers.
  *
  * Invariants: `receive` never blocks on a store, because all executors wait in one line for it;
  * an executor counts as alive from its first message until Spark has removed it; nothing that
  * concerns stored files is remembered of a checkpoint from one run of its query to the next.
  *
  * @param query Spark's id of the query that the calling thread runs
  */
final class DriverSide(
    val run: String,
    settings: Settings,
    registry: MetricRegistry,
    query: () => Option[String])
    extends Logging {
  private val sums = new ExecutorSums
  private val metrics = new DriverMetrics(registry, sums)
  private val kept = new ConcurrentHashMap[String, HouseKeeping]

  /** What the committed batches were made of. */
  val reports = new BatchReports

  private val checkpoints = new ConcurrentHashMap[String, CheckpointLog]
  private val alive = ConcurrentHashMap.newKeySet[String]()
  private val gone = ConcurrentHashMap.newKeySet[String]()
  private val housekeeping =
    Executors.newSingleThreadExecutor(DaemonThreads("tidelog-housekeeping"))
  // What arrives before the first commit of a checkpoint is opened waits here.
  private val early = new ConcurrentHashMap[String, Vector[Message]]
  private val earlyDeletions = new ConcurrentHashMap[String, Vector[Long]]
  private val stateless = ConcurrentHashMap.newKeySet[String]()
  private val committers = new ConcurrentHashMap[String, AtomicFiles]
  private val tickets = new AtomicLong

  def executors: Set[String] = alive.asScala.toSet

  def receive(message: Message): AnyRef = {
    if (!gone.contains(message.executor)) alive.add(message.executor)
    message match {
      case durable: SegmentDurable =>
        metrics.stored(durable.upload.elapsedNs)
        to(durable.root, durable)
      case failed: UploadFailed => to(failed.root, failed)
      case deleted: Deleted => to(deleted.root, deleted)
      case poll: Poll => answer(poll)
    }
  }

  /** Spark has removed an executor: what it had not uploaded is lost. */
  def executorRemoved(executor: String): Unit = {
    gone.add(executor)
    alive.remove(executor)
    sums.removed(executor)
    checkpoints.values.asScala.foreach(_.reconsider())
  }

  /** The barrier of one batch of a checkpoint. */
  def barrier(root: CheckpointRoot, batch: Long, files: AtomicFiles): CommitBarrier =
    new CommitBarrier {
      private val log = open(root, files)

      override def gather(ids: Vector[NamedId]): Gathered =
        try log.gather(batch, ids, new StoredElsewhere(root, files))
        catch {
          case error: Throwable =>
            metrics.barrierFailures.inc()
            throw error
        }

      override def published(gathered: Gathered, indexBytes: Long): Unit = {
        metrics.committed(gathered, indexBytes)
        reports.add(BatchReport(query(), root, gathered, indexBytes, houseKeeping(root).take()))
        logInfo(describe(root, batch, gathered))
        log.committed(batch, gathered.index)
      }
    }

  /** Takes the deletion of a commit upon itself, unless the query is known to have no state. Before
    * this driver's first commit nobody knows whether the file holds the only index of its batch.
    */
  def takesDeletion(root: CheckpointRoot, batch: Long, files: AtomicFiles): Boolean = synchronized {
    begin(root, files)
    val takes = !stateless.contains(root.uri)
    if (takes) {
      checkpoint(root) match {
        case Some(log) => log.deleteCommit(batch)
        case None => earlyDeletions.merge(root.uri, Vector(batch), (before, now) => before ++ now)
      }
    }
    takes
  }

  /** A query without state has committed: the commits whose deletion has waited for this. */
  def committedWithoutState(root: CheckpointRoot, files: AtomicFiles): Vector[Long] = synchronized {
    begin(root, files)
    if (checkpoint(root).isEmpty) stateless.add(root.uri)
    Option(earlyDeletions.remove(root.uri)).getOrElse(Vector.empty)
  }

  /** Lets an executor in this JVM know of the barrier at once; the others ask for it. */
  def hurry(root: CheckpointRoot, ticket: Long): Unit =
    ExecutorSide.current.foreach(_.flush(root.uri, ticket))

  /** Ends when the house-keeping of all published commits is done, or after half a minute. */
  def shutdown(): Unit = {
    housekeeping.shutdown()
    housekeeping.awaitTermination(DriverSide.HousekeepingSeconds, TimeUnit.SECONDS)
  }

  private def houseKeeping(root: CheckpointRoot): HouseKeeping =
    kept.computeIfAbsent(root.uri, _ => new HouseKeeping(metrics))

  private def checkpoint(root: CheckpointRoot): Option[CheckpointLog] =
    Option(checkpoints.get(root.uri))

  /** Starts afresh when a run of a query begins. Every run has a commit log of its own, with a file
    * manager of its own; the directory may be another checkpoint's since the last one.
    */
  private def begin(root: CheckpointRoot, files: AtomicFiles): Unit = {
    val before = Option(committers.put(root.uri, files))
    if (before.exists(_ ne files)) {
      stateless.remove(root.uri)
      earlyDeletions.remove(root.uri)
      checkpoint(root).foreach(_.restarted(new IndexFiles(root, files)))
    }
  }

  private def open(root: CheckpointRoot, files: AtomicFiles): CheckpointLog = synchronized {
    begin(root, files)
    checkpoints.computeIfAbsent(root.uri, _ => {
      val collector = new Collector(new IndexFiles(root, files), run, houseKeeping(root))
      val log = new CheckpointLog(
        root, settings.barrierTimeoutMs, this, () => tickets.incrementAndGet(), collector,
        housekeeping)
      Option(early.remove(root.uri)).foreach(_.foreach(deliver(log, _)))
      Option(earlyDeletions.remove(root.uri)).foreach(_.foreach(log.deleteCommit))
      log
    })
  }

  private def to(root: String, message: Message): AnyRef = synchronized {
    checkpoint(CheckpointRoot(root)) match {
      case Some(log) => deliver(log, message)
      case None => early.merge(root, Vector(message), (before, now) => before ++ now)
    }
    Answer.Received
  }

  private def deliver(log: CheckpointLog, message: Message): Unit = message match {
    case durable: SegmentDurable => log.durable(durable)
    case failed: UploadFailed => log.failed(failed)
    case deleted: Deleted => log.deleted(deleted.names)
    case _: Poll =>
  }

  private def answer(poll: Poll): AnyRef = {
    if (poll.figures.nonEmpty && !gone.contains(poll.executor)) {
      sums.report(poll.executor, poll.figures)
    }
    poll.acknowledged.foreach { case (root, ticket) =>
      checkpoint(CheckpointRoot(root)).foreach(_.acknowledge(poll.executor, ticket))
    }
    val waiting = checkpoints.asScala.flatMap { case (root, log) => log.barrier.map(root -> _) }
    Answer.waiting(waiting.toMap)
  }

  private def describe(root: CheckpointRoot, batch: Long, gathered: Gathered): String = {
    val index = gathered.index
    val bytes = index.entries.map(_.bytes).sum
    s"tidelog: batch $batch of $root: ${index.entries.length} changelogs of $bytes bytes in " +
      s"${index.segments.size} segments, the barrier waited ${gathered.waitedMs} ms"
  }
}

object DriverSide {
  private val HousekeepingSeconds = 30L
  @volatile private var side: Option[DriverSide] = None

  /** The plug-in of this JVM, if it is the driver of an application that has it. */
  def current: Option[DriverSide] = side

  private[spark] def set(running: Option[DriverSide]): Unit = side = running
}
