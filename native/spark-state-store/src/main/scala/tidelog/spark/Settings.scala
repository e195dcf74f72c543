package tidelog.spark

import org.apache.spark.SparkConf

/** What a user can set about the plug-in; all under `spark.tidelog.`, documented in docs/reference/spark-plugin.md.
  *
  * Invariant: read once per JVM from the application's SparkConf, so driver and executors agree.
  *
  * @param segmentBytes parts that have grown to this are uploaded while the batch still runs; a
  *   changelog that an executor stores itself is cut into segments of this size
  * @param partBytes a changelog up to this size goes to the driver, which packs those of all executors
  * @param commitBytes what the driver has of a batch lies in its commit if it is no more than this
  * @param inFlightBytes bound of bytes of parts that the driver holds; executors store the rest
  * @param uploadThreads uploads at once: of the driver for a query, of an executor for a changelog
  * @param uploadDeadlineMs an upload is retried for this long before it counts as failed
  * @param barrierTimeoutMs how long the driver waits for a batch's changelogs to be durable
  * @param snapshotIntervalMs stores that commit often take a snapshot no more often than about this
  * @param stagger whether each store takes its snapshots at its own phase of the period
  * @param cacheBytes bytes of segments an executor keeps in memory while it restores
  */
final case class Settings(
    segmentBytes: Long,
    partBytes: Long,
    commitBytes: Long,
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
    val settings = Settings(
      segmentBytes = bytes("spark.tidelog.segment.bytes", "8m"),
      partBytes = bytes("spark.tidelog.part.bytes", "1m"),
      commitBytes = conf.getSizeAsBytes("spark.tidelog.commit.bytes", "256k"),
      inFlightBytes = bytes("spark.tidelog.inFlight.bytes", "64m"),
      uploadThreads = positive("spark.tidelog.upload.threads", conf.getInt(
        "spark.tidelog.upload.threads", 4).toLong).toInt,
      uploadDeadlineMs = ms("spark.tidelog.upload.deadline", "60s"),
      barrierTimeoutMs = ms("spark.tidelog.barrier.timeout", "120s"),
      stagger = conf.getBoolean("spark.tidelog.snapshot.stagger", defaultValue = true),
      snapshotIntervalMs = conf.getTimeAsMs("spark.tidelog.snapshot.interval", "4min"),
      cacheBytes = bytes("spark.tidelog.cache.bytes", "64m"))
    atLeast("inFlight.bytes", settings.inFlightBytes, "segment.bytes", settings.segmentBytes)
    atLeast("segment.bytes", settings.segmentBytes, "part.bytes", settings.partBytes)
    atLeast(
      "barrier.timeout", settings.barrierTimeoutMs, "upload.deadline", settings.uploadDeadlineMs)
    settings
  }

  private def atLeast(larger: String, found: Long, smaller: String, least: Long): Unit =
    if (found < least) {
      throw new IllegalArgumentException(
        s"spark.tidelog.$larger; expected at least spark.tidelog.$smaller, $least; found $found. " +
          "Next: raise the first or lower the second (a retry is safe).")
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
