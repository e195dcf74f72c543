package tidelog.spark.driver

import java.util.concurrent.ExecutorService

import tidelog.spark.rpc.{OfRun, Part, Stored}
import tidelog.spark.storage.AtomicFiles

/** What the driver knows of the directory of one checkpoint; the driver's side guards it.
  *
  * @param keeping counts its house-keeping
  */
private[driver] final class CheckpointState(val keeping: HouseKeeping) {

  /** Runs of queries that are known to use it. */
  var runs = Set.empty[String]

  /** The file manager of the newest run's commit log. */
  var files = Option.empty[AtomicFiles]
  var log = Option.empty[CheckpointLog]

  /** The query is known to have no state. */
  var stateless = false

  /** Commits that Spark has deleted while it was not known whether the query has state. */
  var deletions = Vector.empty[Long]

  // What arrives before the first commit waits here.
  private var early = Vector.empty[OfRun]

  def deliver(message: OfRun): Unit = log match {
    case Some(log) => deliver(log, message)
    case None => early :+= message
  }

  def open(opened: CheckpointLog): Unit = {
    log = Some(opened)
    early.foreach(deliver(opened, _))
    deletions.foreach(opened.deleteCommit)
    early = Vector.empty
    deletions = Vector.empty
  }

  /** Another run begins. */
  def restarted(now: AtomicFiles): Unit = {
    stateless = false
    deletions = Vector.empty
    log.foreach(_.restarted(now))
  }

  /** Drops what waits; the house-keeping that goes on. */
  def close(held: HeldBytes): Option[ExecutorService] = {
    early.foreach {
      case part: Part => held.release(part.bytes.length.toLong)
      case _ => ()
    }
    log.map(_.close())
  }

  private def deliver(log: CheckpointLog, message: OfRun): Unit = message match {
    case part: Part => log.add(part)
    case stored: Stored => log.stored(stored)
  }
}
