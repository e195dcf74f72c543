package tidelog.spark.snapshot

/** How often a state store commits; immutable.
  *
  * @param last the newest version and when it was begun, in milliseconds
  * @param versionMs milliseconds from one version to the next, smoothed; None before the third
  */
final case class Pace(last: Option[(Long, Long)], versionMs: Option[Double]) {

  /** A version is begun. Only the step from the version before it says how long one takes. */
  def seen(version: Long, nowMs: Long): Pace = {
    val step = last.collect { case (before, atMs) if version == before + 1 => nowMs - atMs }
    Pace(Some((version, nowMs)), step.fold(versionMs)(ms => Some(smoothed(ms.toDouble))))
  }

  private def smoothed(ms: Double): Double =
    versionMs.fold(ms)(before => before + (ms - before) * Pace.Weight)
}

object Pace {
  val start: Pace = Pace(None, None)
  private val Weight = 0.1
}
