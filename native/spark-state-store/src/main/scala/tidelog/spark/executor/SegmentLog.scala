package tidelog.spark.executor

import java.io.FileNotFoundException
import java.util.concurrent.{ScheduledExecutorService, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.immutable.SortedSet

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import tidelog.spark.format.{ChangelogName, ObjectNames, Piece, SegmentAuthor, SegmentBuilder}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Message, SegmentDurable, Upload, UploadFailed}
import tidelog.spark.snapshot.SnapshotTurn
import tidelog.spark.storage.AtomicFiles

/** Who writes segments: `run` names the driver process, `startMs` is when it started. */
final case class Author(run: String, startMs: Long, executor: String)

/** What all segment logs of an executor share.
  *
  * @param counter numbers segments; one for all checkpoints, because a copy of a checkpoint has the
  *   segments of its original under the same names
  */
final class LogServices(
    val author: Author,
    val policy: FlushPolicy,
    val pieceBytes: Int,
    val inFlight: InFlightBytes,
    val uploads: Uploads,
    val timer: ScheduledExecutorService,
    val counter: AtomicLong,
    val metrics: ExecutorMetrics,
    val report: Message => Unit)

/** The segment log of one executor for one checkpoint: packs the changelogs of all partitions.
  *
  * Invariants: every piece handed over is in exactly one segment; every segment ends durable or
  * failed, and the driver gets to know which; a barrier is acknowledged only when everything handed
  * over before it has ended so.
  *
  * @param tasks the tasks of the query that writes the checkpoint
  */
final class SegmentLog(
    root: CheckpointRoot,
    files: AtomicFiles,
    services: LogServices,
    tasks: () => TaskPace,
    learn: SegmentDurable => Unit)
    extends Logging {

  private var openChangelogs = 0
  private var filling: Option[OpenSegment] = None
  private var outstanding = SortedSet.empty[Long]
  private var barrier = SeenBarrier(0, 0)
  private var timerAtMs = Long.MaxValue

  /** @param turn whether the changelog's version comes with a snapshot */
  def create(name: ChangelogName, turn: SnapshotTurn): CancellableFSDataOutputStream = {
    synchronized(openChangelogs += 1)
    new ChangelogStream(new Sink(new PendingChangelog(name, turn)))
  }

  /** Starts the upload of everything handed over; `ticket` is the driver's waiting barrier. */
  def flush(ticket: Long): Unit = synchronized {
    seal()
    if (ticket > barrier.ticket) barrier = SeenBarrier(ticket, services.counter.get)
  }

  /** The newest barrier before which nothing is under way any more. */
  def acknowledged: Long = synchronized {
    val ended = outstanding.headOption.forall(_ >= barrier.counter)
    if (ended) barrier.ticket else 0
  }

  /** The tasks of the query have started or ended. */
  def reconsider(): Unit = synchronized(setTimer())

  /** Whether bytes wait here or are on their way. */
  def busy: Boolean = synchronized(filling.isDefined || outstanding.nonEmpty)

  private final class Sink(changelog: PendingChangelog) extends PieceSink {
    override def pieceBytes: Int = services.pieceBytes

    override def handOver(bytes: Array[Byte], last: Boolean): Unit = {
      services.inFlight.acquire(bytes.length.toLong)(full = flush(ticket = 0))
      services.metrics.changelogBytes.inc(bytes.length.toLong)
      append(changelog, bytes, last)
    }

    override def end(completed: Boolean): Unit = {
      if (completed) services.metrics.completed(changelog.turn) else changelog.lose()
      SegmentLog.this.synchronized {
        openChangelogs -= 1
        setTimer()
      }
    }
  }

  private def append(changelog: PendingChangelog, bytes: Array[Byte], last: Boolean): Unit =
    synchronized {
      val number = changelog.handOver(bytes.length, last)
      val segment = filling.getOrElse(startSegment())
      val pieces = if (last) number + 1 else 0
      val piece = segment.builder.add(changelog.name, number, pieces, bytes)
      segment.parts :+= Part(changelog, number, piece, bytes.length)
      segment.lastMs = nowMs
      if (startsIn(segment) <= 0) seal() else setTimer()
    }

  private def startSegment(): OpenSegment = {
    val segment = new OpenSegment(services.author, services.counter.getAndIncrement(), nowMs)
    filling = Some(segment)
    outstanding += segment.counter
    segment
  }

  private def startsIn(segment: OpenSegment): Long =
    services.policy.startsIn(
      Filling(openChangelogs, tasks(), segment.builder.size, segment.firstMs, segment.lastMs),
      nowMs)

  private def setTimer(): Unit = filling.foreach { segment =>
    val delayMs = startsIn(segment).max(1)
    // A timer that is set already and fires earlier will set the next one itself.
    if (nowMs + delayMs < timerAtMs) {
      timerAtMs = nowMs + delayMs
      services.timer.schedule((() => onTimer()): Runnable, delayMs, TimeUnit.MILLISECONDS)
    }
  }

  private def onTimer(): Unit = synchronized {
    timerAtMs = Long.MaxValue
    filling.foreach(segment => if (startsIn(segment) <= 0) seal() else setTimer())
  }

  private def seal(): Unit = filling.foreach { segment =>
    filling = None
    services.uploads.submit(files, root.segment(segment.name), () => segment.builder.result()) {
      case Right(result) => stored(segment, result)
      case Left(error) => failed(segment, error)
    }
  }

  private def stored(segment: OpenSegment, result: Stored): Unit = {
    services.metrics.uploaded(segment.parts.length, result)
    val complete = segment.parts.flatMap { part =>
      part.changelog.stored(part.number, part.piece).map(_ -> part.changelog.turn)
    }
    def turns(kind: SnapshotTurn) = complete.count { case (_, turn) => turn == kind }
    val upload = Upload(
      result.elapsedNs, result.attempts, turns(SnapshotTurn.Taken), turns(SnapshotTurn.PutOff))
    val newest = segment.parts.map(_.changelog.name.version).max
    val durable = SegmentDurable(
      services.author.executor, root.uri, segment.name, result.bytes, newest, complete.map(_._1),
      upload)
    learn(durable)
    end(segment, durable)
  }

  private def failed(segment: OpenSegment, error: Throwable): Unit = {
    val text = s"tidelog: segment ${root.segment(segment.name)} could not be stored"
    // What was committed is stored: nobody needs the rest of a query that has stopped, or whose
    // directory was removed. The barrier of one that runs tells of the error.
    val givenUp = services.uploads.ended || error.isInstanceOf[FileNotFoundException]
    if (givenUp) logInfo(text, error) else logError(text, error)
    segment.parts.foreach(_.changelog.lose())
    val names = segment.parts.map(_.changelog.name).distinct
    end(segment, UploadFailed(services.author.executor, root.uri, names, error.toString))
  }

  private def end(segment: OpenSegment, message: Message): Unit = {
    services.inFlight.release(segment.parts.map(_.bytes.toLong).sum)
    // The driver gets it before it can get to know that nothing is under way.
    try services.report(message)
    finally synchronized(outstanding -= segment.counter)
  }

  private def nowMs: Long = RunningTasks.nowMs
}

/** A barrier the driver has announced, and the first segment counter after it. */
private final case class SeenBarrier(ticket: Long, counter: Long)

/** A piece in a segment. */
private final case class Part(
    changelog: PendingChangelog,
    number: Int,
    piece: Piece,
    bytes: Int)

/** The segment that is being filled; guarded by its log. */
private final class OpenSegment(author: Author, val counter: Long, val firstMs: Long) {
  val name: String = ObjectNames.segment(author.run, author.executor, counter)
  val builder = new SegmentBuilder(
    SegmentAuthor(author.startMs, s"${author.run}-${author.executor}".take(16), counter), name)
  var parts = Vector.empty[Part]
  var lastMs: Long = firstMs
}
