package tidelog.spark

import java.io.{ByteArrayOutputStream, FileNotFoundException, IOException}
import java.util.UUID
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.concurrent.TrieMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FSDataInputStream, Path, PathFilter}

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import tidelog.spark.driver.{CommitStream, DriverSide}
import tidelog.spark.executor.ExecutorSide
import tidelog.spark.format.{ChangelogName, IndexEntry}
import tidelog.spark.index.{ChangelogInput, IndexReader, IndexReaders, MadeChecksum, SegmentCache}
import tidelog.spark.layout.{CheckpointRoot, PathKind}
import tidelog.spark.layout.PathKind.{Changelog, ChangelogChecksum, Commit, Other, Snapshot}
import tidelog.spark.snapshot.{CleanUpMemory, StoreSnapshots}
import tidelog.spark.storage.{AtomicFiles, NotedStream}

/** The files of a checkpoint as Spark sees them, with the changelogs of state stores in the log.
  *
  * Set it as `spark.sql.streaming.checkpointFileManagerClass`. Spark's own RocksDB state store
  * writes, lists, reads and deletes `<version>_<id>.changelog` through it and finds them where it
  * expects them; their bytes lie in segments. `commits/N` appears only when all of them are
  * durable. Every other file is Spark's own business.
  *
  * Invariants: a changelog that this class was not given (of a checkpoint without ids, or written
  * before the plug-in was switched on) is an ordinary file and stays one; what is remembered of a
  * checkpoint is remembered for one run of a query, because the directory may hold another
  * checkpoint when the next run begins.
  *
  * Errors: as CheckpointFileManager; CorruptObjectException names what is damaged.
  */
class TidelogCheckpointFileManager(path: Path, conf: Configuration)
    extends CheckpointFileManager
    with Logging {
  private val files = AtomicFiles.open(path, conf)

  override def createAtomic(file: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    PathKind.of(file) match {
      case Changelog(root, name) => createChangelog(file, at(root), name)
      case _: ChangelogChecksum => new Discarded
      case Commit(root, batch) => createCommit(file, at(root), batch, overwrite)
      case Snapshot(version) =>
        new NotedStream(files.createAtomic(file, overwrite), () => storedSnapshot(file, version))
      case Other =>
        if (file.getName.endsWith(".changelog")) warnOfFormatOne()
        files.createAtomic(file, overwrite)
    }

  override def open(file: Path): FSDataInputStream = PathKind.of(file) match {
    case Changelog(root, name) => openChangelog(file, at(root), name)
    case ChangelogChecksum(root, name) if inLog(root, name) =>
      MadeChecksum.of(openChangelog(file, at(root), name))
    case _ => files.manager.open(file)
  }

  override def list(directory: Path, filter: PathFilter): Array[FileStatus] = {
    // Most listings look for snapshots only: they need no index.
    val found = PathKind.storeDirectory(directory) match {
      case Some(store) if filter.accept(new Path(directory, AnyChangelog)) =>
        val virtual = index(at(store.root)).directory(store.directory).map(status(directory, _))
        def listing = listReal(directory, AnyFile, orEmpty = virtual.nonEmpty)
        val real = if (cleaningUp) cleanUp.list(directory)(listing) else listing
        (real ++ virtual).filter(one => filter.accept(one.getPath))
      case _ => files.manager.list(directory, filter)
    }
    found.foreach(file => noteSnapshot(file.getPath))
    found
  }

  override def exists(file: Path): Boolean = PathKind.of(file) match {
    case Changelog(root, name) =>
      val reader = index(at(root))
      // Ids are new in every task: before its batch is committed, none of them has a file.
      reader.find(name, fresh = false).isDefined ||
        (!writing || reader.committed(name)) &&
          (files.exists(file) || reader.findAgain(name).isDefined)
    case _: ChangelogChecksum if writing => false
    case _ if cleaningUp && PathKind.isTableFolder(file) && cleanUp.searched(file) => false
    case _ if cleaningUp && cleanUp.knows(file) => true
    case _ =>
      if (writing) loading = Option(TaskContext.get())
      val found = files.exists(file)
      if (found) noteSnapshot(file)
      found
  }

  override def delete(file: Path): Unit = {
    PathKind.of(file) match {
      case Changelog(root, name) => deleteChangelog(file, at(root), name)
      case ChangelogChecksum(root, name) if inLog(root, name) => ()
      case Commit(root, batch) =>
        if (!DriverSide.current.exists(_.takesDeletion(at(root), batch, files))) {
          files.manager.delete(file)
        }
      case _ => files.manager.delete(file)
    }
    cleanUp.deleted(file)
  }

  override def mkdirs(directory: Path): Unit = files.manager.mkdirs(directory)

  override def isLocal: Boolean = files.manager.isLocal

  override def createCheckpointDirectory(): Path = files.manager.createCheckpointDirectory()

  override def close(): Unit = {
    snapshots.close()
    files.manager.close()
  }

  private def createChangelog(file: Path, root: CheckpointRoot, name: ChangelogName) = {
    val side = ExecutorSide.current.getOrElse(throw missingPlugin(file))
    val intervalMs = Option.when(side.settings.stagger)(side.settings.snapshotIntervalMs)
    val retained = conf.getInt("spark.sql.streaming.minBatchesToRetain", 100)
    val status = snapshots.begin(file.getParent, name, intervalMs, retained)
    for (store <- snapshots.dueAtOnce; task <- loading) side.maintainAfter(task, store)
    loading = None
    side.create(root, run, files, name, status)
  }

  private def createCommit(file: Path, root: CheckpointRoot, batch: Long, overwrite: Boolean) = {
    def side = DriverSide.current.getOrElse(throw missingPlugin(file))
    new CommitStream(file, overwrite, files, side.barrier(root, batch, files), () =>
      DriverSide.current.foreach(_.committedWithoutState(root, files).foreach { waiting =>
        files.manager.delete(root.commit(waiting))
      }))
  }

  private def openChangelog(file: Path, root: CheckpointRoot, name: ChangelogName) = {
    val reader = index(root)
    reader.find(name, fresh = true).map(opened(root, reader, _)).getOrElse {
      try files.manager.open(file)
      catch {
        case missing: FileNotFoundException if !reader.isDeleted(name) =>
          val found = reader.findAgain(name).orElse(reader.search(name))
          opened(root, reader, found.getOrElse(throw missing))
      }
    }
  }

  private def opened(root: CheckpointRoot, reader: IndexReader, entry: IndexEntry) = {
    val cache = SegmentCache.shared
    def segments(one: IndexEntry) = one.pieces.map(piece => root.segment(piece.segment))
    // A store that is restored reads the changelogs of all versions since its snapshot in turn.
    if (!segments(entry).forall(cache.contains)) {
      val soon = reader.following(entry.name).flatMap(_.pieces).map(_.segment)
      cache.prefetch(files, soon.flatMap(name => reader.length(name).map(root.segment(name) -> _)))
    }
    new FSDataInputStream(
      new ChangelogInput(root, entry, files, reader.length, cache, reader.findAgain))
  }

  private def deleteChangelog(file: Path, root: CheckpointRoot, name: ChangelogName): Unit =
    if (index(root).find(name, fresh = false).isDefined) index(root).delete(name)
    else files.manager.delete(file)

  private def listReal(directory: Path, filter: PathFilter, orEmpty: Boolean) =
    try files.manager.list(directory, filter)
    catch { case _: FileNotFoundException if orEmpty => Array.empty[FileStatus] }

  private def status(directory: Path, entry: IndexEntry): FileStatus = {
    val file = new Path(directory, entry.name.file)
    new FileStatus(entry.bytes, false, 1, entry.bytes.max(1), 0, file)
  }

  // One manager serves one directory of one checkpoint, and qualifying a path costs microseconds.
  private val roots = TrieMap.empty[Path, CheckpointRoot]

  private def at(root: Path): CheckpointRoot =
    roots.getOrElseUpdate(root, CheckpointRoot.of(root, conf))

  // Spark gives the managers of its state stores a configuration with the run of the query, or of
  // the scan, that they serve; any other manager is a reader of its own.
  private val run = conf.get("sql.streaming.runId", UUID.randomUUID.toString)

  // Each state store has a manager of its own, from when it is opened until it is closed.
  private val snapshots = new StoreSnapshots

  private val cleanUp = new CleanUpMemory(() => System.nanoTime() / 1000000)

  // Spark cleans up a store that it has open between tasks, in a thread of its own.
  private def cleaningUp: Boolean = !writing && snapshots.isOpen

  private def storedSnapshot(file: Path, version: Long): Unit = {
    snapshots.stored(version)
    cleanUp.stored(file)
  }

  // The task that loads the store; the changelog of its version may be created by another thread.
  @volatile private var loading = Option.empty[TaskContext]

  private val indexes = TrieMap.empty[CheckpointRoot, IndexReader]

  private def index(root: CheckpointRoot): IndexReader =
    indexes.getOrElseUpdate(root, IndexReaders.of(root, run, files))

  // Before Spark loads a store it asks for the snapshot of its version, or lists all of them; not
  // every version of Spark opens them here.
  private def noteSnapshot(file: Path): Unit =
    if (file.getName.endsWith(".zip")) PathKind.of(file) match {
      case Snapshot(version) =>
        snapshots.stored(version)
        if (writing) cleanUp.forget()
      case _ => ()
    }

  private def inLog(root: Path, name: ChangelogName): Boolean = {
    val reader = index(at(root))
    // Spark deletes the changelog and its checksum file in either order.
    reader.isDeleted(name) || reader.find(name, fresh = false).isDefined
  }

  private def writing: Boolean = TaskContext.get() != null

  private def warnOfFormatOne(): Unit =
    if (TidelogCheckpointFileManager.warned.compareAndSet(false, true)) {
      logWarning(
        s"tidelog: $path has checkpoint format 1, whose changelogs stay files. Next: start the " +
          "query with a new checkpoint directory and " +
          "spark.sql.streaming.stateStore.checkpointFormatVersion=2 (a retry changes nothing).")
    }

  private def missingPlugin(file: Path): IOException = new IOException(
    s"spark.plugins; expected tidelog.spark.TidelogPlugin among them, because " +
      s"spark.sql.streaming.checkpointFileManagerClass is ${getClass.getName}; found that it is " +
      s"not running where $file is written. Next: unless the application was ending, add it to " +
      "spark.plugins and start it again (a retry is safe).")

  private val AnyChangelog = "1_0.changelog"
  private val AnyFile: PathFilter = _ => true
}

private object TidelogCheckpointFileManager {
  private val warned = new AtomicBoolean
}

/** The checksum file of a changelog in the log: its blocks have checksums, it needs no file. */
private final class Discarded extends CancellableFSDataOutputStream(new ByteArrayOutputStream) {
  override def cancel(): Unit = ()
}
