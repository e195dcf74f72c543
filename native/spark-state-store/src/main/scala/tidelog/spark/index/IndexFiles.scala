package tidelog.spark.index

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.hadoop.fs.{FileStatus, Path}

import tidelog.spark.format.{FooterEntry, IndexDocument, IndexEntry, ObjectNames, SegmentReader}
import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.storage.AtomicFiles

/** What a listing says of a file's content: another one has another length or time. */
final case class Stamp(bytes: Long, modifiedMs: Long)

/** The index as it is stored: roll-ups, the lines in commits, and the segments' footers.
  *
  * Invariant: None means that the object does not exist; damage is an error that names it.
  */
class IndexFiles(root: CheckpointRoot, files: AtomicFiles) {

  /** The roll-up that covers a batch. */
  def rollUp(batch: Long): Option[IndexDocument] =
    present(files.read(root.rollUp(batch))).map { bytes =>
      IndexDocument.read(new String(bytes, UTF_8).trim, root.rollUp(batch).toString)
    }

  def writeRollUp(document: IndexDocument): Unit = {
    files.prepare(root.index)
    files.write(
      root.rollUp(document.first),
      IndexDocument.write(document).getBytes(UTF_8),
      overwrite = true)
  }

  def deleteRollUp(batch: Long): Unit = files.manager.delete(root.rollUp(batch))

  /** The commit of a batch. */
  def commit(batch: Long): Option[CommitFile] =
    present(files.read(root.commit(batch))).map(CommitFile.read(_, root.commit(batch).toString))

  def deleteCommit(batch: Long): Unit = files.manager.delete(root.commit(batch))

  /** First batches of the roll-ups there are. */
  def rollUps(): Vector[Long] = rollUpStamps().keys.toVector.sorted

  def rollUpStamps(): Map[Long, Stamp] = stamps(root.index, _.stripSuffix(".json").toLongOption)

  /** The batches that have a commit file. */
  def commits(): Vector[Long] = commitStamps().keys.toVector.sorted

  def commitStamps(): Map[Long, Stamp] = stamps(root.commits, _.toLongOption)

  /** The segments there are, with their lengths in bytes. */
  def segments(): Vector[(String, Long)] =
    list(root.segments)
      .filter(_.getPath.getName.endsWith(".seg"))
      .map(status => (status.getPath.getName, status.getLen))

  /** Removes what writers of other runs have left half-written. */
  def removeTemporaryFiles(token: String): Unit =
    list(root.segments)
      .map(_.getPath)
      .filter(file => file.getName.startsWith(".") && file.getName.endsWith(".tmp"))
      .filterNot(_.getName.startsWith(s".$token"))
      .foreach(files.manager.delete)

  def footer(segment: String, bytes: Long): Seq[FooterEntry] = {
    val path = root.segment(segment)
    SegmentReader.footerAt(bytes, files.read(path, _, _), path.toString)
  }

  /** The segment in the commit of a batch. */
  def segmentInCommit(batch: Long): Option[Array[Byte]] =
    present(files.read(root.commit(batch)))
      .flatMap(CommitFile.segment(_, root.commit(batch).toString))

  /** Nobody is expected to need the segment in this commit any more: its bytes leave the memory. */
  def forgetCommit(batch: Long): Unit = SegmentCache.shared.forget(root.commit(batch))

  def writeSegment(segment: String, bytes: Array[Byte]): Unit = {
    files.prepare(root.segments)
    files.write(root.segment(segment), bytes, overwrite = true)
  }

  /** The bytes of a changelog, for house-keeping. */
  def content(entry: IndexEntry): Array[Byte] =
    new ChangelogInput(root, entry, files, _ => None, SegmentCache.shared, counted = false)
      .readAllBytes()

  def deleteSegment(segment: String): Unit = files.manager.delete(root.segment(segment))

  private def stamps(directory: Path, number: String => Option[Long]): Map[Long, Stamp] =
    list(directory).flatMap { status =>
      number(status.getPath.getName).map(_ -> Stamp(status.getLen, status.getModificationTime))
    }.toMap

  private def list(directory: Path): Vector[FileStatus] =
    present(files.manager.list(directory)).fold(Vector.empty[FileStatus])(_.toVector)

  private def present[T](read: => T): Option[T] =
    try Some(read)
    catch { case _: FileNotFoundException => None }
}

object IndexFiles {
  def windowOf(batch: Long): Long = batch - batch % ObjectNames.BatchesPerRollUp
}
