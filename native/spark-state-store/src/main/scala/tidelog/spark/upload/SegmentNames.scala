package tidelog.spark.upload

import java.util.concurrent.atomic.AtomicLong

import tidelog.spark.format.{ObjectNames, SegmentAuthor, SegmentBuilder}

/** Names of segments: the first eight digits of Spark's id of the query's run, the executor, and a
  * number.
  *
  * Invariant: no two processes write one object, because a run has one driver and that gives each
  * executor an id; no process uses a number twice.
  */
final case class SegmentNames(executor: String, startMs: Long) {

  /** A builder of the run's next segment, with its name. */
  def next(run: String): (String, SegmentBuilder) = {
    val author = nextAuthor(run)
    val name = ObjectNames.segment(SegmentNames.token(run), executor, author.counter)
    (name, new SegmentBuilder(author, name))
  }

  /** A builder of a run's next segment that lies in the commit of a batch. */
  def inCommit(run: String, batch: Long): SegmentBuilder =
    new SegmentBuilder(nextAuthor(run), ObjectNames.inCommit(batch))

  private def nextAuthor(run: String) = SegmentAuthor(
    startMs,
    s"${SegmentNames.token(run)}-$executor".take(16),
    SegmentNames.counter.getAndIncrement())
}

object SegmentNames {
  // In local mode driver and executor are one process with one id.
  private val counter = new AtomicLong

  /** What the names of a run's segments begin with. */
  def token(run: String): String = run.take(8)
}
