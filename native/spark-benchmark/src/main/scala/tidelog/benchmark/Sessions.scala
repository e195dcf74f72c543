package tidelog.benchmark

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Encoder, Encoders}
import org.apache.spark.sql.functions.{col, floor}
import org.apache.spark.sql.streaming._

/** The sessions of keys by transformWithState: a value and a timer per key that is active.
  *
  * Invariant: a session is closed, and its state cleared, `SilenceMs` after its last row.
  */
object Sessions {
  private val SilenceMs = 5000L
  private val KeysPerBatch = 500
  private val BatchesPerKey = 4

  /** Of rows with `value`, that counts on, and `timestamp`: in every batch of `rowsPerBatch` rows
    * 500 keys have rows, and after four batches 500 others.
    */
  def of(rows: DataFrame, rowsPerBatch: Int): DataFrame = {
    implicit val keys: Encoder[Long] = Encoders.scalaLong
    implicit val events: Encoder[(Long, Timestamp)] =
      Encoders.tuple(Encoders.scalaLong, Encoders.TIMESTAMP)
    implicit val closed: Encoder[(Long, Long)] =
      Encoders.tuple(Encoders.scalaLong, Encoders.scalaLong)
    val round = floor(col("value") / (rowsPerBatch * BatchesPerKey))
    val key = (col("value") % KeysPerBatch + round * KeysPerBatch).cast("long")
    rows.withWatermark("timestamp", "0 seconds")
      .select(key.as("_1"), col("timestamp").as("_2"))
      .as[(Long, Timestamp)]
      .groupByKey(_._1)
      .transformWithState(new Sessions, TimeMode.EventTime(), OutputMode.Append())
      .toDF("key", "rows")
  }
}

private final class Sessions extends StatefulProcessor[Long, (Long, Timestamp), (Long, Long)] {
  // Rows so far, and when the session ends unless there are more.
  @transient private var open: ValueState[(Long, Long)] = _

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    val encoder = Encoders.tuple(Encoders.scalaLong, Encoders.scalaLong)
    open = getHandle.getValueState("open", encoder, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: Long,
      rows: Iterator[(Long, Timestamp)],
      now: TimerValues): Iterator[(Long, Long)] = {
    val before = Option(open.get())
    var (count, last) = before.fold((0L, 0L)) { case (rows, end) => (rows, end) }
    rows.foreach { case (_, at) =>
      count += 1
      last = last.max(at.getTime + Sessions.SilenceMs)
    }
    before.foreach { case (_, end) => getHandle.deleteTimer(end) }
    getHandle.registerTimer(last)
    open.update((count, last))
    Iterator.empty
  }

  override def handleExpiredTimer(
      key: Long,
      now: TimerValues,
      expired: ExpiredTimerInfo): Iterator[(Long, Long)] = {
    val (count, _) = open.get()
    open.clear()
    Iterator((key, count))
  }
}
