package tidelog.benchmark

import org.apache.hadoop.conf.Configuration

/** How the store behaves; 0 stands for no latency and for no limit. As `LatencyProfile` in Python.
  *
  * @param latencyMs median of PUT; the other kinds follow
  * @param mbPerS all transfers of this JVM together, up and down; 1 MB is 10^6^ bytes
  * @param connectionMbPerS one transfer alone
  */
final case class LatencyProfile(
    latencyMs: Double,
    seed: Long,
    mbPerS: Double,
    connectionMbPerS: Double) {
  Seq(latencyMs, mbPerS, connectionMbPerS).foreach { value =>
    require(value >= 0 && !value.isInfinite, s"$this: a value must be finite and at least 0")
  }

  /** Of the link, per byte. */
  val linkSeconds: Double = LatencyProfile.secondsPerByte(mbPerS)

  /** Of a transfer that has the link for itself, per byte. */
  val transferSeconds: Double = linkSeconds.max(LatencyProfile.secondsPerByte(connectionMbPerS))
}

object LatencyProfile {
  val LatencyKey = "fs.counted.latency.ms"
  val SeedKey = "fs.counted.seed"
  val BandwidthKey = "fs.counted.mb.per.s"
  val ConnectionKey = "fs.counted.connection.mb.per.s"

  /** By default a store that answers as fast as the disk. */
  def of(conf: Configuration): LatencyProfile =
    LatencyProfile(
      latencyMs = conf.getDouble(LatencyKey, 0),
      seed = conf.getLong(SeedKey, 1),
      mbPerS = conf.getDouble(BandwidthKey, 0),
      connectionMbPerS = conf.getDouble(ConnectionKey, 0))

  private def secondsPerByte(mbPerS: Double): Double = if (mbPerS > 0) 1 / (mbPerS * 1e6) else 0.0
}
