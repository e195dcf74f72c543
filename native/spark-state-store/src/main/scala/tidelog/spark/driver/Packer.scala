package tidelog.spark.driver

import java.util.concurrent.ExecutorService

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

import tidelog.spark.format.{IndexEntry, SegmentBuilder}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.{Part, StoredSegment}
import tidelog.spark.storage.AtomicFiles
import tidelog.spark.upload.{SegmentNames, SegmentUpload}

/** What all packers of a driver share.
  *
  * @param segmentBytes parts of this many bytes leave while their batch still runs
  * @param commitBytes so many bytes of parts lie in the commit of their batch
  * @param held room that every part has taken and gives back when it is stored or dropped
  */
final case class PackerServices(
    names: SegmentNames,
    segmentBytes: Long,
    commitBytes: Long,
    held: HeldBytes,
    uploads: SegmentUpload)

/** A segment for the commit of the batch that its parts are of. */
final case class Packed(parts: Vector[(Part, IndexEntry)], segment: Array[Byte])

/** Gets to know what became of parts. */
trait PackerListener {
  def stored(parts: Vector[(Part, IndexEntry)], segment: StoredSegment): Unit
  def failed(parts: Vector[Part], error: Throwable): Unit
}

/** Packs the parts of one checkpoint, of all executors, into segments and uploads these.
  *
  * Invariants: a part is in exactly one segment, or dropped because no commit will name it; of
  * every segment that is uploaded the listener gets to know whether it is durable. Thread-safe.
  *
  * @param files of the query's newest run
  */
final class Packer(
    root: CheckpointRoot,
    files: () => AtomicFiles,
    services: PackerServices,
    threads: ExecutorService,
    listener: PackerListener)
    extends Logging {
  private var waiting = Vector.empty[Part]
  private var waitingBytes = 0L
  private var uploading = Set.empty[String]
  private var settledVersion = -1L
  // Directories of stores: whose part of a later version has come, and whose part has not, though
  // one was in the last commit.
  private var come, missing = Set.empty[String]
  @volatile private var preparedBy: AtomicFiles = _

  /** Takes a part, whose bytes have their room. If it is the last one to come, the upload begins:
    * Spark has its own work between the end of the last task and the commit.
    */
  def add(part: Part): Unit = synchronized {
    waiting :+= part
    waitingBytes += bytesOf(part)
    val awaited = missing
    if (part.name.version > settledVersion) {
      come += part.name.directory
      missing -= part.name.directory
    }
    val complete = awaited.nonEmpty && missing.isEmpty && waitingBytes > services.commitBytes
    if (complete || waitingBytes >= services.segmentBytes) {
      seal(waiting)
      setWaiting(Vector.empty)
    }
  }

  /** Uploads the parts that the commit of a batch names, or returns them packed if they are few;
    * drops the others of its version.
    */
  def flush(ids: Set[String], batch: Long): Option[Packed] = synchronized {
    val version = batch + 1
    val (settled, later) = waiting.partition(_.name.version <= version)
    settledVersion = version
    missing = come -- later.map(_.name.directory)
    come = later.map(_.name.directory).toSet
    val (named, lost) = settled.partition(part => ids(part.name.id))
    setWaiting(later)
    lost.foreach(release)
    if (named.nonEmpty && named.map(bytesOf).sum <= services.commitBytes) {
      named.foreach(release)
      val builder = services.names.inCommit(named.head.run, batch)
      Some(Packed.tupled(pack(named, builder)))
    } else {
      named.groupBy(_.run).values.foreach(seal)
      None
    }
  }

  /** Ids of parts that wait or are on their way. */
  def underWay: Set[String] = synchronized(uploading ++ waiting.map(_.name.id))

  /** Drops what waits. */
  def close(): Unit = synchronized {
    waiting.foreach(release)
    setWaiting(Vector.empty)
  }

  private def setWaiting(parts: Vector[Part]): Unit = {
    waiting = parts
    waitingBytes = parts.map(bytesOf).sum
  }

  private def seal(parts: Vector[Part]): Unit = if (parts.nonEmpty) {
    uploading ++= parts.map(_.name.id)
    threads.execute(() => upload(parts))
  }

  private def upload(parts: Vector[Part]): Unit = {
    try {
      // First the room: the listener may let a commit go on, whose successor needs it.
      val (entries, segment) = try store(parts) finally parts.foreach(release)
      listener.stored(entries, segment)
    } catch {
      case error @ (NonFatal(_) | _: InterruptedException) =>
        logError(s"tidelog: a segment of $root could not be stored", error)
        listener.failed(parts, error)
    } finally synchronized(uploading --= parts.map(_.name.id))
  }

  private def store(parts: Vector[Part]): (Vector[(Part, IndexEntry)], StoredSegment) = {
    val (name, builder) = services.names.next(parts.head.run)
    val (entries, bytes) = pack(parts, builder)
    entries -> services.uploads.store(prepared(), root.segment(name), bytes)
  }

  private def pack(parts: Vector[Part], builder: SegmentBuilder) = {
    val entries = parts.map { part =>
      val piece = builder.add(part.name, 0, 1, part.bytes)
      part -> IndexEntry(part.name, bytesOf(part), Vector(piece))
    }
    (entries, builder.result())
  }

  /** The files of the newest run; somebody may have removed the directory since the last one. */
  private def prepared(): AtomicFiles = {
    val now = files()
    if (preparedBy ne now) now.prepare(root.segments)
    preparedBy = now
    now
  }

  private def release(part: Part): Unit = services.held.release(bytesOf(part))

  private def bytesOf(part: Part): Long = part.bytes.length.toLong
}
