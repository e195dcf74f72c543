package tidelog.spark.index

import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap

import scala.collection.immutable.TreeMap
import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging

import tidelog.spark.format.{
  ChangelogName,
  CorruptObjectException,
  IndexDocument,
  IndexEntry,
  ObjectNames
}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.rpc.StoredSegment
import tidelog.spark.storage.AtomicFiles

/** Where changelogs lie: the index, read on demand and remembered.
  *
  * Invariants: ids are unique, so an entry once read never becomes wrong; a batch is remembered
  * only when its commit exists, because before that its index may still come; a batch that ran
  * again is read again as soon as a listing shows its files changed or an id of it is not known;
  * what was deleted through this reader is not found by it again. It remembers as many batches as
  * the stored index has, which are those that the query retains and what they build on. A damaged
  * roll-up or line is passed over with a warning, since commits and footers say the same.
  */
final class IndexReader(
    root: CheckpointRoot,
    files: AtomicFiles,
    listingAgeMs: Long = IndexReader.ListingAgeMs)
    extends Logging {
  private type Entries = Map[ChangelogName, IndexEntry]

  private val stored = new IndexFiles(root, files)
  private val own = new OwnEntries(IndexReader.OwnKept)
  private var batches = TreeMap.empty[Long, Entries]
  private var commitsRead = Map.empty[Long, Stamp]
  private var rollUpsRead = Map.empty[Long, Stamp]
  private var deleted = TreeMap.empty[Long, Set[ChangelogName]]
  @volatile private var lengths = Map.empty[String, Long]
  private var absent = Map.empty[Long, Long]
  private var listedNs: Option[Long] = None
  private var room = IndexReader.OwnKept

  /** The entry of a changelog; `fresh` asks the store again for a batch that was absent lately. */
  def find(name: ChangelogName, fresh: Boolean): Option[IndexEntry] =
    if (isDeleted(name)) None else own.find(name).orElse(findStored(name, fresh))

  /** The entry of a changelog that is not known, though its batch may be: it may have run again. */
  def findAgain(name: ChangelogName): Option[IndexEntry] = synchronized {
    if (isDeleted(name)) None
    else {
      load(name.batch)
      remembered(name)
    }
  }

  /** Spark has deleted a changelog; the stored index will say so later. */
  def delete(name: ChangelogName): Unit = synchronized {
    deleted = deleted.updated(name.batch, deleted.getOrElse(name.batch, Set.empty) + name)
  }

  def isDeleted(name: ChangelogName): Boolean =
    synchronized(deleted.get(name.batch)).exists(_.contains(name))

  /** Whether the batch that wrote a changelog is committed, as far as is known. */
  def committed(name: ChangelogName): Boolean = synchronized(batches.contains(name.batch))

  /** The changelogs of one state store, in no order; at most `listingAgeMs` old. */
  def directory(directory: String): Vector[IndexEntry] = synchronized {
    if (listedNs.forall(System.nanoTime() - _ > listingAgeMs * 1000000)) loadAll()
    val entries = batches.valuesIterator.flatMap(_.valuesIterator) ++ own.entries
    entries
      .filter(entry => entry.name.directory == directory && !isDeleted(entry.name))
      .toVector
      .distinct
  }

  /** Remembers what this JVM has stored itself; never waits for a request. */
  def learn(entry: IndexEntry, segments: Vector[StoredSegment]): Unit = own.add(entry, segments)

  /** Length of a segment's object in bytes, where the index has said it. */
  def length(segment: String): Option[Long] = own.length(segment).orElse(lengths.get(segment))

  /** The changelogs of the same store in the batches after this one's, as far as they are known. */
  def following(name: ChangelogName): Iterator[IndexEntry] = {
    val known = synchronized(batches)
    (name.batch + 1 to name.batch + IndexReader.BatchesAhead).iterator
      .flatMap(known.get)
      .flatMap(_.valuesIterator.filter(_.name.directory == name.directory))
  }

  /** Looks into the footers of all segments: slow, for an index that is lost. Raises
    * CorruptObjectException where the commit itself shows that nothing has this name.
    */
  def search(name: ChangelogName): Option[IndexEntry] = {
    undamaged(stored.commit(name.batch)).flatMap(_.misnamed(name)).foreach { right =>
      throw CommitFile.misnamed(root.commit(name.batch).toString, name.id, right)
    }
    logWarning(s"tidelog: $root has no index entry for ${name.path}, reading all footers")
    new FooterSearch(stored).entries(Seq(name.batch), _ == name).find(_.name == name)
  }

  private def remembered(name: ChangelogName): Option[IndexEntry] =
    batches.get(name.batch).flatMap(_.get(name))

  // Requests are made under the lock: another thread that asks waits for the same answer.
  private def findStored(name: ChangelogName, fresh: Boolean): Option[IndexEntry] = synchronized {
    val batch = name.batch
    if (!batches.contains(batch) && (fresh || !absentLately(batch))) {
      if (listedNs.isEmpty) loadAll()
      if (!batches.contains(batch)) load(batch)
    }
    remembered(name)
  }

  private def absentLately(batch: Long): Boolean =
    absent.get(batch).exists(System.nanoTime() - _ < IndexReader.AbsenceMs * 1000000)

  private def load(batch: Long): Unit = {
    // Batches that are stored no more are forgotten by a listing: one that nothing else asked for.
    if (batches.size >= room) {
      loadAll()
      room = 2 * batches.size.max(IndexReader.OwnKept)
    }
    // A commit may have lost its line, or never had one; then it only says that it exists.
    val commit = readCommit(batch)
    val found = commit.filter(_.entries.nonEmpty).orElse(readRollUp(batch)).orElse(commit)
    found.foreach(remember)
    // The next listing tells whether this was the newest content.
    if (commit.isDefined) commitsRead = commitsRead.updated(batch, IndexReader.Unlisted)
    absent =
      if (found.isDefined) absent - batch
      else absent.updated(batch, System.nanoTime()).takeRight(8)
  }

  private def complete(window: Long): Boolean =
    (window until window + ObjectNames.BatchesPerRollUp).forall(batches.contains)

  private def readRollUp(batch: Long): Option[IndexDocument] = undamaged(stored.rollUp(batch))

  private def readCommit(batch: Long): Option[IndexDocument] =
    undamaged(stored.commit(batch)).map { commit =>
      commit.index.getOrElse(IndexDocument(batch, batch, Map.empty, Vector.empty))
    }

  private def loadAll(): Unit = {
    val (rollUps, commits) = (stored.rollUpStamps(), stored.commitStamps())
    forgetChanged(rollUps, commits)
    val windows = rollUps.keys.toVector.sorted
    val unread = windows.filterNot(first => complete(first) || rollUpsRead.contains(first))
    val found = unread.zip(Reads.all(unread)(readRollUp)).filter(_._2.isDefined)
    found.flatMap(_._2).foreach(remember)
    rollUpsRead = rollUps.filter { case (first, _) =>
      complete(first) || rollUpsRead.contains(first) || found.exists(_._1 == first)
    }
    val single = commits.keys.toVector.sorted.filterNot(batches.contains)
    val lines = single.zip(Reads.all(single)(readCommit)).filter(_._2.isDefined)
    lines.flatMap(_._2).foreach(remember)
    commitsRead = commits.filter { case (batch, _) =>
      commitsRead.contains(batch) || lines.exists(_._1 == batch)
    }
    listedNs = Some(System.nanoTime())
  }

  /** Forgets the batches whose files are gone or are other ones than those that were read. */
  private def forgetChanged(rollUps: Map[Long, Stamp], commits: Map[Long, Stamp]): Unit = {
    val rolledAnew = rollUpsRead.collect {
      case (first, stamp) if !rollUps.get(first).contains(stamp) => first
    }.toSet
    def committedAnew(batch: Long) =
      commitsRead.get(batch).exists(read => commits.get(batch).exists(_ != read))
    def exists(batch: Long) =
      commits.contains(batch) || rollUps.contains(IndexFiles.windowOf(batch))
    batches = batches.filter { case (batch, _) =>
      exists(batch) && !rolledAnew(IndexFiles.windowOf(batch)) && !committedAnew(batch)
    }
    commitsRead = commitsRead.filter { case (batch, _) => batches.contains(batch) }
    rollUpsRead = rollUpsRead -- rolledAnew
    deleted = deleted.filter { case (batch, _) => exists(batch) }
    val pieces = batches.valuesIterator.flatMap(_.valuesIterator).flatMap(_.pieces)
    val named = pieces.map(_.segment).toSet
    lengths = lengths.filter { case (segment, _) => named(segment) }
  }

  private def remember(document: IndexDocument): Unit = {
    lengths ++= document.segments
    val byBatch = document.entries.groupBy(_.name.batch)
    (document.first to document.last).foreach { batch =>
      val entries = byBatch.getOrElse(batch, Vector.empty).map(entry => entry.name -> entry).toMap
      batches = batches.updated(batch, entries)
      own.settled(batch)
    }
  }

  private def undamaged[T](read: => Option[T]): Option[T] =
    try read
    catch {
      case error: CorruptObjectException =>
        logWarning(s"tidelog: passing over, as long as it is so: ${error.getMessage}")
        None
    }
}

object IndexReader {
  private val OwnKept = 512
  private val BatchesAhead = 16
  private val AbsenceMs = 1000L
  private val ListingAgeMs = 10000L
  private val Unlisted = Stamp(-1, -1)
}

/** The readers of this JVM: one for each checkpoint and run of a query, or scan of its state, so
  * that all partitions share what is read, and nothing is remembered of a checkpoint that was
  * removed, set back or replaced between two runs.
  *
  * Invariant: a reader lives as long as something holds what `of` has returned.
  */
object IndexReaders {
  private val readers = new ConcurrentHashMap[(CheckpointRoot, String), WeakReference[IndexReader]]

  def of(root: CheckpointRoot, run: String, files: => AtomicFiles): IndexReader = synchronized {
    Option(readers.get((root, run))).flatMap(known => Option(known.get)).getOrElse {
      readers.values.removeIf(_.get == null)
      val reader = new IndexReader(root, files)
      readers.put((root, run), new WeakReference(reader))
      reader
    }
  }

  /** Tells the readers of a checkpoint what this JVM has stored; never waits for a request. */
  def learn(root: CheckpointRoot, entry: IndexEntry, segments: Vector[StoredSegment]): Unit =
    readers.asScala.foreach { case ((one, _), known) =>
      if (one == root) Option(known.get).foreach(_.learn(entry, segments))
    }
}
