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
    val (token, counter) = (SegmentNames.token(run), SegmentNames.counter.getAndIncrement())
    val name = ObjectNames.segment(token, executor, counter)
    val author = SegmentAuthor(startMs, s"$token-$executor".take(16), counter)
    (name, new SegmentBuilder(author, name))
  }
}

object SegmentNames {
  // In local mode driver and executor are one process with one id.
  private val counter = new AtomicLong

  /** What the names of a run's segments begin with. */
  def token(run: String): String = run.take(8)
}
