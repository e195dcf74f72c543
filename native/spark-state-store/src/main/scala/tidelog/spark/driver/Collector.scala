package tidelog.spark.driver

import java.io.IOException
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

import tidelog.spark.format.{CorruptObjectException, IndexDocument, ObjectNames}
import tidelog.spark.index.{FooterSearch, IndexFiles}
import tidelog.spark.upload.SegmentNames

/** Keeps the stored log of one checkpoint small: rolls the index up with what lies in its commits,
  * removes segments and roll-ups that nothing needs, and sweeps what a crash has left.
  *
  * Invariants: all methods run on one thread; a segment is removed only when no committed batch
  * needs it, and before the last index that names it, so no crash leaves one that nobody knows; a
  * failed removal is tried again after the next commit; a roll-up is written only when all its
  * batches are known, because the next driver believes it.
  *
  * One collector serves one run of a query.
  */
final class Collector(stored: IndexFiles, names: SegmentNames, figures: HouseKeeping)
    extends Logging {
  private var index = LiveIndex()
  private var loaded = false
  private var known = Set.empty[Long]
  private var deferredCommits = Set.empty[Long]
  private var expired = Map.empty[String, Long]
  // Of the query; of this collector alone while no changelog has shown it.
  private var naming = UUID.randomUUID.toString

  /** Called before the commit of a batch: a query that was set back commits batches again of which
    * a roll-up still has the old changelogs. A crash must not leave both.
    */
  def undo(batch: Long): Unit = {
    val covering = stored.rollUps().filter(_ + ObjectNames.BatchesPerRollUp > batch)
    // A later commit shows that it is not the query but its driver that comes from the past.
    if (covering.nonEmpty && stored.commits().forall(_ < batch)) covering.foreach(undo(_, batch))
  }

  private def undo(first: Long, batch: Long): Unit =
    if (first >= batch) stored.deleteRollUp(first)
    else {
      try stored.rollUp(first).filter(_.last >= batch).foreach { document =>
        stored.writeRollUp(document.before(batch))
      } catch { case _: CorruptObjectException => () } // nobody believes it
    }

  def segmentStored(segment: String, bytes: Long, newest: Long): Unit =
    index = index.stored(segment, bytes, newest)

  /** A batch is committed.
    *
    * @param run the query's run, if a changelog of the batch shows it
    * @param floors by the directory of a store, the version before which it needs nothing
    */
  def committed(document: IndexDocument, run: Option[String], floors: Map[String, Long]): Unit = {
    val (batch, first) = (document.last, !loaded)
    run.foreach(naming = _)
    if (first) load(batch)
    document.segments.foreach { case (name, bytes) => index = index.stored(name, bytes, 0) }
    index = index.publish(batch, document.entries)
    known += batch
    if (first) run.foreach(one => attempt("sweep")(sweep(SegmentNames.token(one))))
    index = index.expire(floors.filter { case (store, floor) => expired.getOrElse(store, 0L) < floor })
    expired ++= floors
    removeUnneeded()
    // Only a roll-up asks for them from here on.
    known = known.filter(_ >= IndexFiles.windowOf(index.batches.headOption.fold(batch)(_._1)))
    figures.live(index.segments.size.toLong, index.storedBytes)
  }

  /** Removes the commit file of a batch, now or as soon as its line is not needed any more. */
  def deleteCommit(batch: Long): Unit = {
    deferredCommits += batch
    if (loaded) removeDead()
  }

  /** Takes over what earlier drivers have stored, up to batch `until`. */
  private def load(until: Long): Unit = {
    val windows = stored.rollUps().filter(_ < until)
    val listed = stored.commits().filter(_ < until)
    // Not before both are listed: an index that knows too little takes segments for garbage.
    loaded = true
    windows.foreach(first => attempt(s"roll-up of batch $first")(loadRollUp(first, until)))
    val unrolled = listed.filterNot(known)
    unrolled.foreach(batch => attempt(s"index of batch $batch")(loadCommit(batch)))
    // From the start of a window: its roll-up will say that it knows all of its batches.
    val from = IndexFiles.windowOf((windows ++ unrolled :+ until).min)
    val missing = (from until until).filterNot(known)
    if (missing.nonEmpty) attempt("rebuilding the index")(rebuild(missing.toSet))
  }

  private def loadRollUp(first: Long, until: Long): Unit = stored.rollUp(first).foreach { found =>
    val document = found.before(until)
    val byBatch = document.entries.groupBy(_.name.batch)
    document.segments.foreach { case (name, bytes) => index = index.stored(name, bytes, 0) }
    (document.first to document.last).foreach { batch =>
      index = index.add(batch, byBatch.getOrElse(batch, Vector.empty))
      known += batch
    }
    if (document.last - first + 1 == ObjectNames.BatchesPerRollUp) index = index.withRollUp(first)
  }

  private def loadCommit(batch: Long): Unit = stored.commit(batch).foreach { commit =>
    commit.index.foreach { document =>
      document.segments.foreach { case (name, bytes) => index = index.stored(name, bytes, 0) }
      index = index.add(batch, document.entries)
    }
    // A commit without a line was written by Spark alone: nothing of it is in the log, unless the
    // line was lost; the ids it names are searched for like those of a lost roll-up.
    if (commit.index.isDefined || commit.ids.isEmpty) known += batch
  }

  /** Finds in the footers what the index has lost; it keeps too much rather than too little. */
  private def rebuild(batches: Set[Long]): Unit = {
    val lengths = stored.segments().toMap
    val found = new FooterSearch(stored).entries(batches, name => batches(name.batch))
    found.groupBy(_.name.batch).foreach { case (batch, entries) =>
      entries.flatMap(_.pieces.map(_.segment)).distinct.foreach { segment =>
        index = index.stored(segment, lengths.getOrElse(segment, 0L), 0)
      }
      index = index.add(batch, entries)
    }
    known ++= batches
    if (found.nonEmpty) {
      logWarning(s"tidelog: rebuilt ${found.size} index entries of ${batches.size} batches")
    }
  }

  /** Removes what crashes have left, not what this run stores meanwhile; finds the batches whose
    * roll-up is lost or old on the way.
    */
  private def sweep(token: String): Unit = {
    val listed = stored.segments()
    val unnamed = listed.filterNot { case (name, _) =>
      name.startsWith(token) || index.segments.get(name).exists(_.live > 0)
    }
    val footers = unnamed.flatMap { case (name, bytes) =>
      try Some(name -> stored.footer(name, bytes))
      catch {
        case error: IOException => // gone since the listing, or damaged
          logWarning(s"tidelog: the sweep leaves segment $name as it is", error)
          None
      }
    }
    val batches = footers.flatMap(_._2).map(_.name.batch).filter(_ < index.committed).toSet
    val windows = batches.filterNot(known).map(IndexFiles.windowOf)
    if (windows.nonEmpty) {
      rebuild(windows.flatMap(first => first until first + ObjectNames.BatchesPerRollUp) -- known)
    }
    batches.foreach(confirm)
    val garbage = footers.collect {
      case (name, footer) if Sweep.isGarbage(name, footer, index, known) => name
    }
    garbage.foreach(stored.deleteSegment)
    stored.removeTemporaryFiles(token)
    index = index.withoutSegments(garbage.toSet)
    if (garbage.nonEmpty) logInfo(s"tidelog: swept ${garbage.size} segments of earlier runs")
    figures.swept(garbage.size.toLong)
  }

  /** Believes the commit where a roll-up has other ids: the batch has run again since, and an older
    * release left the roll-up as it was. It is written again.
    */
  private def confirm(batch: Long): Unit = stored.commit(batch).flatMap(_.index).foreach { line =>
    val named = line.entries.map(entry => (entry.name.directory, entry.name.id)).toMap
    val before = index.batches.getOrElse(batch, Map.empty).keys
    if (before.exists(name => named.get(name.directory).exists(_ != name.id))) {
      line.segments.foreach { case (name, bytes) => index = index.stored(name, bytes, 0) }
      index = index.delete(before).add(batch, line.entries).withoutRollUp(batch)
    }
  }

  private def removeUnneeded(): Unit = {
    index.dueWindows
      .filter(first => (first until first + ObjectNames.BatchesPerRollUp).forall(known))
      .foreach(first => attempt(s"roll-up of batch $first")(writeRollUp(first)))
    removeDead()
  }

  private def removeDead(): Unit = {
    index.deadSegments.foreach(name => attempt(s"segment $name")(removeSegment(name)))
    if (index.deadSegments.isEmpty) {
      deferredCommits.filterNot(index.onlyIndexOf).foreach { batch =>
        attempt(s"commit $batch")(removeCommit(batch))
      }
      index.deadWindows.foreach(first => attempt(s"roll-up of batch $first")(removeRollUp(first)))
    }
  }

  private def writeRollUp(first: Long): Unit = {
    moveOutOfCommits(first)
    stored.writeRollUp(index.rollUp(first))
    index = index.withRollUp(first)
    figures.rolledUp()
  }

  /** Commits go earlier than what they hold, and a roll-up names no commit. */
  private def moveOutOfCommits(first: Long): Unit = {
    val inCommits = index.inCommits(first)
    if (inCommits.nonEmpty) {
      val (segment, builder) = names.next(naming)
      val moved = inCommits.map { entry =>
        entry.copy(pieces = Vector(builder.add(entry.name, 0, 1, stored.content(entry))))
      }
      val bytes = builder.result()
      stored.writeSegment(segment, bytes)
      figures.packed(bytes.length.toLong)
      inCommits.map(_.name.batch).distinct.foreach(stored.forgetCommit)
      index = index.stored(segment, bytes.length.toLong, newest = 0).moved(moved)
    }
  }

  private def removeSegment(name: String): Unit = {
    stored.deleteSegment(name)
    index = index.withoutSegments(Set(name))
    figures.deletedSegment()
  }

  private def removeCommit(batch: Long): Unit = {
    stored.deleteCommit(batch)
    deferredCommits -= batch
  }

  private def removeRollUp(first: Long): Unit = {
    stored.deleteRollUp(first)
    index = index.withoutWindows(Set(first))
  }

  private def attempt(what: String)(work: => Unit): Unit =
    try work
    catch {
      case error: InterruptedException => throw error
      case error @ (_: IOException | NonFatal(_)) =>
        figures.failed()
        logWarning(s"tidelog: $what failed and is tried again at the next start or commit", error)
    }
}
