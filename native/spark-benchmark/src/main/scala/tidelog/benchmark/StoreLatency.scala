package tidelog.benchmark

/** How long the n-th request of a kind takes, as `tidelog_bench.store` in Python says; the
  * source of the figures is given there.
  *
  * Invariant: a draw is a pure function of seed, kind and number, equal bit for bit to Python's:
  * `tests/golden/store_latency_v1.txt` holds both to it.
  */
object StoreLatency {
  private val Shares = Array(0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
  private val Put = Array(15.0, 30.0, 54.0, 88.0, 200.0, 1000.0)
  private val SourceMedian = 30.0

  /** Kind -> its code and its quantiles, in ms. */
  private val Kinds = Map(
    "put" -> (1L, Put),
    "get" -> (2L, Array(13.0, 26.0, 40.0, 73.0, 166.0, 830.0)),
    "list" -> (3L, Array(12.0, 24.0, 29.0, 46.0, 105.0, 525.0)),
    "head" -> (4L, Array(5.0, 10.0, 13.0, 28.0, 64.0, 320.0)),
    "delete" -> (5L, Put))

  /** Milliseconds of request `number` (from 0) of a kind where PUT's median is `medianMs`. */
  def ms(medianMs: Double, seed: Long, kind: String, number: Long): Double = {
    val (code, table) = Kinds(kind)
    medianMs * (quantile(table, uniform(seed, code, number)) / SourceMedian)
  }

  private def quantile(table: Array[Double], share: Double): Double = {
    val upper = Shares.indexWhere(share < _)
    val (low, high) = (table(upper - 1), table(upper))
    val (start, end) = (Shares(upper - 1), Shares(upper))
    low + (high - low) * ((share - start) / (end - start))
  }

  private def uniform(seed: Long, code: Long, number: Long): Double =
    (splitMix64(splitMix64(splitMix64(seed) ^ code) ^ number) >>> 11) * (1.0 / (1L << 53))

  private def splitMix64(value: Long): Long = {
    val a = value + 0x9e3779b97f4a7c15L
    val b = (a ^ (a >>> 30)) * 0xbf58476d1ce4e5b9L
    val c = (b ^ (b >>> 27)) * 0x94d049bb133111ebL
    c ^ (c >>> 31)
  }
}
