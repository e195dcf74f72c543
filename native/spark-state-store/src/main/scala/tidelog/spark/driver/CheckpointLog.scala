package tidelog.spark.driver

import java.io.IOException
import java.util.concurrent.{
  Callable,
  ExecutionException,
  ExecutorService,
  RejectedExecutionException,
  TimeoutException,
  TimeUnit
}

import scala.collection.immutable.HashMap

import org.apache.spark.internal.Logging

import tidelog.spark.DaemonThreads
import tidelog.spark.format.{FormatError, IndexDocument, IndexEntry, ObjectNames}
import tidelog.spark.index.{IndexFiles, IndexReaders, NamedId, SegmentCache}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Part, Stored, StoredSegment}
import tidelog.spark.snapshot.SnapshotStatus
import tidelog.spark.storage.AtomicFiles

/** What a barrier has gathered.
  *
  * @param index the batch's index
  * @param segments how its segments were stored
  * @param inCommit the segment that is to lie in the commit
  * @param snapshots those of the stores, in the order of the index's entries
  * @param run the query's run, if a changelog of the batch shows it
  * @param waitedMs how long the barrier has waited
  */
final case class Gathered(
    index: IndexDocument,
    segments: Vector[StoredSegment],
    inCommit: Option[Array[Byte]],
    snapshots: Vector[SnapshotStatus],
    run: Option[String],
    waitedMs: Long) {

  /** By the directory of a store, the version before which it needs nothing. */
  def floors: Map[String, Long] =
    stores.map { case (name, status) => name.directory -> status.floor }.toMap

  /** By the directory of a store, versions since its newest uploaded snapshot. */
  def lags: Vector[(String, Long)] =
    stores.map { case (name, status) => name.directory -> (name.version - status.uploaded) }

  private def stores = index.entries.map(_.name).zip(snapshots)
}

/** One checkpoint as the driver sees it: the changelogs that have arrived since the last commit,
  * and the barrier of the commit that is being written.
  *
  * Invariants: `gather` returns only when every id is durable (in a segment whose entry it returns,
  * or elsewhere, as `elsewhere` has found) or in the segment for the commit itself; else it throws
  * and the batch is not committed. Its threads serve this checkpoint alone, so a store that hangs
  * keeps no other query waiting.
  *
  * @param firstFiles those of the run that opens it
  * @param before the house-keeping of an earlier log of the directory, which has to end first
  */
final class CheckpointLog(
    root: CheckpointRoot,
    timeoutMs: Long,
    uploadThreads: Int,
    services: PackerServices,
    figures: HouseKeeping,
    firstFiles: AtomicFiles,
    before: Option[ExecutorService])
    extends Logging {
  private case class Arrived(entry: IndexEntry, snapshots: SnapshotStatus, run: String)

  private val uploads = DaemonThreads.pool("tidelog-upload", uploadThreads)
  private val housekeeping = DaemonThreads.pool("tidelog-housekeeping", most = 1)
  private var arrived = HashMap.empty[String, Arrived]
  private var failed = HashMap.empty[String, String]
  private var segments = HashMap.empty[String, StoredSegment]
  // For the commit that is being written.
  private var inCommit = Option.empty[Array[Byte]]
  @volatile private var files = firstFiles
  // Whether the run's first commit is still to come.
  @volatile private var first = true
  // Used on the house-keeping thread only.
  private var collector = collectorOf(firstFiles)

  private val packer = new Packer(root, () => files, services, uploads, new PackerListener {
    override def stored(parts: Vector[(Part, IndexEntry)], segment: StoredSegment): Unit = {
      parts.foreach { case (_, entry) => IndexReaders.learn(root, entry, Vector(segment)) }
      arrive(
        parts.map { case (part, entry) => Arrived(entry, part.snapshots, part.run) }, Vector(segment))
    }

    override def failed(parts: Vector[Part], error: Throwable): Unit =
      CheckpointLog.this.synchronized {
        CheckpointLog.this.failed ++= parts.map(_.name.id -> error.toString)
        CheckpointLog.this.notifyAll()
      }
  })

  /** Another run of the query begins on the directory, whose files may be other ones now. */
  def restarted(now: AtomicFiles): Unit = {
    files = now
    first = true
    later { collector = collectorOf(now) }
  }

  private def collectorOf(files: AtomicFiles) =
    new Collector(new IndexFiles(root, files), services.names, figures)

  /** Takes a part, whose bytes have their room. */
  def add(part: Part): Unit = packer.add(part)

  def stored(message: Stored): Unit =
    arrive(Vector(Arrived(message.entry, message.snapshots, message.run)), message.segments)

  def deleteCommit(batch: Long): Unit = later(collector.deleteCommit(batch))

  /** Waits until everything the commit names is durable.
    *
    * Raises IOException if some of it never will be, or on time-out; the batch then runs again.
    */
  def gather(batch: Long, ids: Vector[NamedId], elsewhere: Elsewhere): Gathered = {
    val start = System.nanoTime()
    def waitedMs = (System.nanoTime() - start) / 1000000
    keepForCommit(batch, packer.flush(ids.map(_.id).toSet, batch))
    undo(batch)
    await(batch, ids, elsewhere, waitedMs)
    gathered(batch, ids, waitedMs)
  }

  /** Takes what the packer has for the commit; what it had for one that was not written is gone. */
  private def keepForCommit(batch: Long, packed: Option[Packed]): Unit = synchronized {
    val segment = ObjectNames.inCommit(batch)
    arrived = arrived.filterNot(_._2.entry.pieces.exists(_.segment == segment))
    inCommit = packed.map(_.segment)
    packed.foreach(_.parts.foreach { case (part, entry) =>
      arrived = arrived.updated(part.name.id, Arrived(entry, part.snapshots, part.run))
    })
  }

  /** The batch's commit is published. */
  def committed(batch: Long, gathered: Gathered): Unit = synchronized {
    gathered.inCommit.foreach { bytes =>
      SegmentCache.shared.keep(root.commit(batch), bytes)
      val segment = Vector(StoredSegment(ObjectNames.inCommit(batch), bytes.length.toLong, 0, 0))
      gathered.index.entries
        .filter(_.pieces.exists(piece => ObjectNames.isInCommit(piece.segment)))
        .foreach(IndexReaders.learn(root, _, segment))
    }
    inCommit = None
    // Versions up to batch + 1 are settled; whatever else arrived of them lost to a retry.
    arrived = arrived.filter { case (_, one) => one.entry.name.version > batch + 1 }
    failed = HashMap.empty
    val needed = arrived.valuesIterator.flatMap(_.entry.pieces).map(_.segment).toSet
    segments = segments.filter { case (name, _) => needed(name) }
    later(collector.committed(gathered.index, gathered.run, gathered.floors))
  }

  /** Nothing follows; what was committed is kept in order still. Returns what ends then. */
  def close(): ExecutorService = {
    packer.close()
    uploads.shutdown()
    housekeeping.shutdown()
    housekeeping
  }

  private def arrive(changelogs: Vector[Arrived], stored: Vector[StoredSegment]): Unit = {
    synchronized {
      segments ++= stored.map(one => one.name -> one)
      arrived ++= changelogs.map(one => one.entry.name.id -> one)
      notifyAll()
    }
    val newest = changelogs.map(_.entry.name.version).max
    later(stored.foreach(one => collector.segmentStored(one.name, one.bytes, newest)))
  }

  /** Takes back what the stored index says of batches that are committed again; only the first
    * batch of a run waits for it.
    */
  private def undo(batch: Long): Unit = if (first) {
    val undone: Callable[Unit] = () => {
      before.foreach(_.awaitTermination(timeoutMs, TimeUnit.MILLISECONDS))
      collector.undo(batch)
    }
    try housekeeping.submit(undone).get(timeoutMs, TimeUnit.MILLISECONDS)
    catch {
      case error: ExecutionException => throw error.getCause
      case _: TimeoutException =>
        fail(
          batch,
          s"the house-keeping of the run before has not ended after $timeoutMs ms " +
            "(spark.tidelog.barrier.timeout): the store is slow or does not answer")
    }
    first = false
  }

  private def await(
      batch: Long,
      ids: Vector[NamedId],
      elsewhere: Elsewhere,
      waitedMs: => Long): Unit = {
    var known = Set.empty[String]
    var decision: BarrierDecision = BarrierDecision.Wait
    while (decision != BarrierDecision.Publish) {
      decision = synchronized {
        val first = Barrier.decide(facts(ids, known, waitedMs), timeoutMs)
        if (first == BarrierDecision.Wait) {
          TimeUnit.MILLISECONDS.timedWait(this, CheckpointLog.LookMs)
          Barrier.decide(facts(ids, known, waitedMs), timeoutMs)
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

  private def facts(ids: Vector[NamedId], known: Set[String], waitedMs: Long) = {
    // Before what is durable: a part is the one until it is the other.
    val underWay = packer.underWay
    BarrierFacts(ids.map(_.id).toSet, known ++ arrived.keySet, failed, underWay, waitedMs)
  }

  private def gathered(batch: Long, ids: Vector[NamedId], waitedMs: Long) = synchronized {
    val found = ids.flatMap(named => arrived.get(named.id))
    val entries = found.map(_.entry)
    val (within, apart) =
      entries.flatMap(_.pieces.map(_.segment)).distinct.partition(ObjectNames.isInCommit)
    val stored = apart.map(segments)
    val lengths = stored.map(one => one.name -> one.bytes) ++
      within.map(_ -> inCommit.fold(0L)(_.length.toLong))
    Gathered(
      IndexDocument(batch, batch, lengths.toMap, entries), stored, inCommit,
      found.map(_.snapshots), found.headOption.map(_.run), waitedMs)
  }

  private def lost(missing: Set[String], of: Int): String =
    s"${missing.size} of $of changelogs are nowhere, neither with the driver nor in the store " +
      s"(${missing.toSeq.sorted.take(3).mkString(", ")} among them)"

  private def fail(batch: Long, reason: String): Nothing =
    throw new IOException(
      s"commit of batch $batch of $root; expected every changelog of the batch to be durable; " +
        s"found that ${FormatError.withoutStop(reason)}. Next: restart the query, the batch runs again (a retry is safe).")

  private def later(work: => Unit): Unit =
    try
      housekeeping.execute { () =>
        try work
        catch { case error: IOException => logWarning(s"tidelog: house-keeping of $root", error) }
      }
    catch {
      case _: RejectedExecutionException => logDebug(s"tidelog: the query of $root has ended")
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
