package tidelog.spark.index

import java.util.concurrent.ConcurrentHashMap

import scala.collection.immutable.TreeMap

import org.apache.spark.internal.Logging

import tidelog.spark.format.{
  ChangelogName,
  CorruptObjectException,
  IndexDocument,
  IndexEntry,
  ObjectNames
}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.SegmentDurable
import tidelog.spark.storage.AtomicFiles

/** Where changelogs lie: the index, read on demand and remembered by this JVM.
  *
  * Invariants: ids are unique, so an entry once read never becomes wrong; a batch is remembered
  * only when its commit exists, because before that its index may still come. A damaged roll-up
  * or line is passed over with a warning, since commits and footers say the same.
  */
final class IndexReader(root: CheckpointRoot, files: AtomicFiles) extends Logging {
  private type Entries = Map[ChangelogName, IndexEntry]

  private val stored = new IndexFiles(root, files)
  private val own = new OwnEntries(IndexReader.BatchesKept)
  private var batches = TreeMap.empty[Long, Entries]
  @volatile private var lengths = Map.empty[String, Long]
  private var absent = Map.empty[Long, Long]
  private var listedNs: Option[Long] = None

  /** The entry of a changelog; `fresh` asks the store again for a batch that was absent lately. */
  def find(name: ChangelogName, fresh: Boolean): Option[IndexEntry] =
    own.find(name).orElse(findStored(name, fresh))

  // Requests are made under the lock: whoever else asks waits for the same answer.
  private def findStored(name: ChangelogName, fresh: Boolean): Option[IndexEntry] = synchronized {
    val batch = name.batch
    def known = batches.get(batch).flatMap(_.get(name))
    // A batch that is known without the id may have run again since.
    if (known.isEmpty && (fresh || !batches.contains(batch) && !absentLately(batch))) load(batch)
    known
  }

  /** Whether the batch that wrote a changelog is committed, as far as is known. */
  def committed(name: ChangelogName): Boolean = synchronized(batches.contains(name.batch))

  /** The changelogs of one state store, in no order; at most `ListingAgeMs` old. */
  def directory(directory: String): Vector[IndexEntry] = synchronized {
    if (listedNs.forall(System.nanoTime() - _ > IndexReader.ListingAgeMs * 1000000)) loadAll()
    val entries = batches.valuesIterator.flatMap(_.valuesIterator) ++ own.entries
    entries.filter(_.name.directory == directory).toVector.distinct
  }

  /** Remembers what this JVM has stored itself; never waits for a request. */
  def learn(durable: SegmentDurable): Unit = own.add(durable)

  /** Length of a segment's object in bytes, where the index has said it. */
  def length(segment: String): Option[Long] = own.length(segment).orElse(lengths.get(segment))

  /** The changelogs of the same store in the batches after this one's, as far as they are known. */
  def following(name: ChangelogName): Iterator[IndexEntry] = {
    val known = synchronized(batches)
    (name.batch + 1 to name.batch + IndexReader.BatchesAhead).iterator
      .flatMap(known.get)
      .flatMap(_.valuesIterator.filter(_.name.directory == name.directory))
  }

  /** Looks into the footers of all segments: slow, for an index that is lost. */
  def search(name: ChangelogName): Option[IndexEntry] = {
    logWarning(s"tidelog: $root has no index entry for ${name.path}, reading all footers")
    new FooterSearch(stored).entries(_ == name).find(_.name == name)
  }

  private def absentLately(batch: Long): Boolean =
    absent.get(batch).exists(System.nanoTime() - _ < IndexReader.AbsenceMs * 1000000)

  private def load(batch: Long): Unit = {
    if (listedNs.isEmpty) loadAll()
    if (!batches.contains(batch)) {
      // A commit may have lost its line, or never had one; then it only says that it exists.
      val commit = readCommit(batch)
      val found = commit.filter(_.entries.nonEmpty).orElse(readRollUp(batch)).orElse(commit)
      found.foreach(remember)
      absent =
        if (found.isDefined) absent - batch
        else absent.updated(batch, System.nanoTime()).takeRight(8)
    }
  }

  private def complete(window: Long): Boolean =
    (window until window + ObjectNames.BatchesPerRollUp).forall(batches.contains)

  private def readRollUp(batch: Long): Option[IndexDocument] = undamaged(stored.rollUp(batch))

  private def readCommit(batch: Long): Option[IndexDocument] =
    undamaged(stored.commit(batch)).map { commit =>
      commit.index.getOrElse(IndexDocument(batch, batch, Map.empty, Vector.empty))
    }

  private def loadAll(): Unit = {
    val windows = stored.rollUps()
    val current = batches.keySet.map(IndexFiles.windowOf)
    val gone = current.filter(window => windows.headOption.exists(window < _))
    batches = batches.filterNot { case (batch, _) => gone(IndexFiles.windowOf(batch)) }
    Reads.all(windows.filterNot(complete))(readRollUp).flatten.foreach(remember)
    Reads.all(stored.commits().filterNot(batches.contains))(readCommit).flatten.foreach(remember)
    listedNs = Some(System.nanoTime())
  }

  private def remember(document: IndexDocument): Unit = {
    lengths ++= document.segments
    val byBatch = document.entries.groupBy(_.name.batch)
    (document.first to document.last).foreach { batch =>
      val entries = byBatch.getOrElse(batch, Vector.empty).map(entry => entry.name -> entry).toMap
      batches = batches.updated(batch, entries)
      own.settled(batch)
    }
    if (batches.size > IndexReader.BatchesKept) {
      batches = batches.range(document.first, document.last + 1)
    }
  }

  private def undamaged[T](read: => Option[T]): Option[T] =
    try read
    catch {
      case error: CorruptObjectException =>
        logWarning(s"tidelog: ${error.getMessage} Passing it over for now.")
        None
    }
}

object IndexReader {
  private val BatchesKept = 512
  private val BatchesAhead = 16
  private val AbsenceMs = 1000L
  private val ListingAgeMs = 10000L
}

/** The readers of this JVM, one per checkpoint, so that all partitions share what is read. */
object IndexReaders {
  private val readers = new ConcurrentHashMap[CheckpointRoot, IndexReader]

  def of(root: CheckpointRoot, files: => AtomicFiles): IndexReader =
    readers.computeIfAbsent(root, _ => new IndexReader(root, files))
}
