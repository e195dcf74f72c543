package tidelog.spark.driver

import java.io.IOException
import java.util.concurrent.{Callable, ExecutionException, ExecutorService, TimeUnit}

import scala.collection.immutable.HashMap

import org.apache.spark.internal.Logging

import tidelog.spark.format.{IndexDocument, IndexEntry}
import tidelog.spark.index.{IndexFiles, NamedId}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{SegmentDurable, Upload, UploadFailed}

/** What a barrier has gathered: the batch's index, how its segments were stored, and how long the
  * barrier has waited.
  */
final case class Gathered(index: IndexDocument, uploads: Vector[Upload], waitedMs: Long)

/** One checkpoint as the driver sees it: what executors have made durable since the last commit,
  * and the barrier of the commit that is being written.
  *
  * Invariant: `gather` returns only when every id is durable (in a segment whose entry it returns,
  * or elsewhere, as `elsewhere` has found); else it throws and the batch is not committed.
  *
  * @param driver who is alive
  * @param tickets numbers barriers, ever higher: executors remember the highest they have seen
  * @param firstCollector runs the checkpoint's house-keeping, in order
  */
final class CheckpointLog(
    root: CheckpointRoot,
    timeoutMs: Long,
    driver: DriverSide,
    tickets: () => Long,
    firstCollector: Collector,
    housekeeping: ExecutorService)
    extends Logging {
  private var arrived = HashMap.empty[String, IndexEntry]
  private var failed = HashMap.empty[String, String]
  private var segments = HashMap.empty[String, SegmentDurable]
  private var acknowledged = Map.empty[String, Long]
  private var waiting: Option[Long] = None

  // Whether the run's first commit is still to come.
  @volatile private var first = true
  // Used on the house-keeping thread only.
  private var collector = firstCollector

  /** Another run of a query begins on the directory, whose files may be other ones now. */
  def restarted(stored: IndexFiles): Unit = {
    first = true
    later { collector = collector.restarted(stored) }
  }

  def durable(message: SegmentDurable): Unit = {
    synchronized {
      segments = segments.updated(message.segment, message)
      arrived ++= message.complete.map(entry => entry.name.id -> entry)
      notifyAll()
    }
    later(collector.segmentStored(message.segment, message.bytes, message.newest))
  }

  def failed(message: UploadFailed): Unit = synchronized {
    failed ++= message.names.map(_.id -> s"on executor ${message.executor}: ${message.reason}")
    notifyAll()
  }

  /** An executor has said so in a poll. */
  def acknowledge(executor: String, ticket: Long): Unit = synchronized {
    acknowledged = acknowledged.updated(executor, ticket)
    notifyAll()
  }

  /** Executors came or went. */
  def reconsider(): Unit = synchronized(notifyAll())

  /** The ticket of the barrier that waits now. */
  def barrier: Option[Long] = synchronized(waiting)

  /** Waits until everything the commit names is durable.
    *
    * Raises IOException if some of it never will be, or on time-out; the batch then runs again.
    */
  def gather(batch: Long, ids: Vector[NamedId], elsewhere: Elsewhere): Gathered = {
    val start = System.nanoTime()
    val ticket = tickets()
    undo(batch)
    synchronized { waiting = Some(ticket) }
    try {
      driver.hurry(root, ticket)
      await(batch, ids, elsewhere, ticket, start)
      gathered(batch, ids, (System.nanoTime() - start) / 1000000)
    } finally synchronized {
      waiting = None
    }
  }

  /** The batch's commit is published. */
  def committed(batch: Long, index: IndexDocument): Unit = {
    synchronized {
      // Versions up to batch + 1 are settled; whatever else arrived of them lost to a retry.
      arrived = arrived.filter { case (_, entry) => entry.name.version > batch + 1 }
      failed = HashMap.empty
      segments = segments.filter { case (name, _) =>
        arrived.valuesIterator.exists(_.pieces.exists(_.segment == name))
      }
    }
    later(collector.committed(index))
  }

  def deleted(names: Vector[tidelog.spark.format.ChangelogName]): Unit =
    later(collector.deleted(names))

  def deleteCommit(batch: Long): Unit =
    later(collector.deleteCommit(batch))

  /** Takes back what the stored index says of batches that are committed again; only the first
    * batch of a run waits for it.
    */
  private def undo(batch: Long): Unit = if (first) {
    val undone: Callable[Unit] = () => collector.undo(batch)
    try housekeeping.submit(undone).get()
    catch { case error: ExecutionException => throw error.getCause }
    first = false
  }

  private def await(
      batch: Long,
      ids: Vector[NamedId],
      elsewhere: Elsewhere,
      ticket: Long,
      startNs: Long): Unit = {
    var known = Set.empty[String]
    var decision: BarrierDecision = BarrierDecision.Wait
    while (decision != BarrierDecision.Publish) {
      decision = synchronized {
        val first = Barrier.decide(facts(ids, known, ticket, startNs), timeoutMs)
        if (first == BarrierDecision.Wait) {
          TimeUnit.MILLISECONDS.timedWait(this, CheckpointLog.LookMs)
          Barrier.decide(facts(ids, known, ticket, startNs), timeoutMs)
        } else first
      }
      decision match {
        case BarrierDecision.LookElsewhere(missing) =>
          val found = elsewhere.find(batch, ids.filter(named => missing(named.id)))
          if (found != missing) fail(batch, lost(missing -- found, ids.length))
          known ++= found
        case BarrierDecision.Fail(reason) => fail(batch, reason)
        case _ =>
      }
    }
  }

  private def facts(ids: Vector[NamedId], known: Set[String], ticket: Long, startNs: Long) =
    BarrierFacts(
      awaited = ids.map(_.id).toSet,
      durable = known ++ arrived.keySet,
      failed = failed,
      executors = driver.executors,
      acknowledged = acknowledged.filter { case (_, seen) => seen >= ticket }.keySet,
      waitedMs = (System.nanoTime() - startNs) / 1000000)

  private def gathered(batch: Long, ids: Vector[NamedId], waitedMs: Long) = synchronized {
    val entries = ids.flatMap(named => arrived.get(named.id))
    val stored = entries.flatMap(_.pieces.map(_.segment)).distinct.map(segments)
    val lengths = stored.map(one => one.segment -> one.bytes).toMap
    Gathered(IndexDocument(batch, batch, lengths, entries), stored.map(_.upload), waitedMs)
  }

  private def lost(missing: Set[String], of: Int): String =
    s"${missing.size} of $of changelogs are nowhere, neither on an executor that is alive nor in " +
      s"the store (${missing.toSeq.sorted.take(3).mkString(", ")} among them): an executor was " +
      "lost before it had uploaded them"

  private def fail(batch: Long, reason: String): Nothing =
    throw new IOException(
      s"commit of batch $batch of $root; expected every changelog of the batch to be durable; " +
        s"found that $reason. Next: restart the query, the batch runs again (a retry is safe).")

  private def later(work: => Unit): Unit =
    housekeeping.execute { () =>
      try work
      catch { case error: IOException => logWarning(s"tidelog: house-keeping of $root", error) }
    }
}

private object CheckpointLog {
  private val LookMs = 200L
}

/** Looks for changelogs the log does not have. */
trait Elsewhere {

  /** Which of these ids are durable without the log: snapshots, real files, earlier commits. */
  def find(batch: Long, ids: Vector[NamedId]): Set[String]
}
