package tidelog.spark

import org.apache.spark.SparkConf

/** What a user can set about the plug-in; all under `spark.tidelog.`, documented in docs/reference/spark-plugin.md.
  *
  * Invariant: read once per JVM from the application's SparkConf, so driver and executors agree.
  *
  * @param segmentBytes a segment that has grown to this is uploaded while the batch still runs
  * @param lingerMs how long an executor without open changelogs waits for the next task; a barrier
  *   ends the wait, so this only decides how soon bytes leave while the batch goes on elsewhere
  * @param maxAgeMs bytes never wait longer than this for their upload to start
  * @param pieceBytes a changelog is handed over in pieces of this size while it grows
  * @param inFlightBytes bound of bytes handed over and not yet durable, per executor
  * @param uploadThreads uploads an executor runs at once
  * @param uploadDeadlineMs an upload is retried for this long before it counts as failed
  * @param barrierTimeoutMs how long the driver waits for a batch's changelogs to be durable
  * @param snapshotIntervalMs stores that commit often take a snapshot no more often than about this
  * @param stagger whether each store takes its snapshots at its own phase of the period
  * @param cacheBytes bytes of segments an executor keeps in memory while it restores
  */
final case class Settings(
    segmentBytes: Long,
    lingerMs: Long,
    maxAgeMs: Long,
    pieceBytes: Int,
    inFlightBytes: Long,
    uploadThreads: Int,
    uploadDeadlineMs: Long,
    barrierTimeoutMs: Long,
    stagger: Boolean,
    snapshotIntervalMs: Long,
    cacheBytes: Long)

object Settings {
  def of(conf: SparkConf): Settings = {
    def bytes(key: String, default: String): Long = positive(key, conf.getSizeAsBytes(key, default))
    def ms(key: String, default: String): Long = positive(key, conf.getTimeAsMs(key, default))
    Settings(
      segmentBytes = bytes("spark.tidelog.segment.bytes", "8m"),
      lingerMs = conf.getTimeAsMs("spark.tidelog.segment.linger", "100ms"),
      maxAgeMs = ms("spark.tidelog.segment.maxAge", "10s"),
      pieceBytes = bytes("spark.tidelog.changelog.pieceBytes", "4m").min(Int.MaxValue / 2).toInt,
      inFlightBytes = bytes("spark.tidelog.inFlight.bytes", "256m"),
      uploadThreads = positive("spark.tidelog.upload.threads", conf.getInt(
        "spark.tidelog.upload.threads", 4).toLong).toInt,
      uploadDeadlineMs = ms("spark.tidelog.upload.deadline", "60s"),
      barrierTimeoutMs = ms("spark.tidelog.barrier.timeout", "120s"),
      stagger = conf.getBoolean("spark.tidelog.snapshot.stagger", defaultValue = true),
      snapshotIntervalMs = conf.getTimeAsMs("spark.tidelog.snapshot.interval", "4min"),
      cacheBytes = bytes("spark.tidelog.cache.bytes", "64m"))
  }

  private def positive(key: String, value: Long): Long = {
    if (value <= 0) {
      throw new IllegalArgumentException(
        s"$key; expected a positive number; found $value. " +
          s"Next: change it or leave it out (a retry is safe).")
    }
    value
  }
}
