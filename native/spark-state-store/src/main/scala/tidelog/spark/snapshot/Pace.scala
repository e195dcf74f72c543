package tidelog.spark.snapshot

/** How often a state store commits; immutable.
  *
  * @param last the newest version and when it was begun, in milliseconds
  * @param versionMs milliseconds from one version to the next, smoothed
  * @param steps how many such times it is made of
  */
final case class Pace(last: Option[(Long, Long)], versionMs: Double, steps: Int) {

  /** A version is begun. Only the step from the version before it says how long one takes. */
  def seen(version: Long, nowMs: Long): Pace = {
    val step = last.collect { case (before, atMs) if version == before + 1 => nowMs - atMs }
    step.fold(this)(ms => measured(ms.toDouble)).copy(last = Some((version, nowMs)))
  }

  /** Milliseconds of a version, once so many steps have been seen. */
  def after(needed: Int): Option[Double] = Option.when(steps > 0 && steps >= needed)(versionMs)

  private def measured(ms: Double): Pace =
    copy(
      versionMs = if (steps == 0) ms else versionMs + (ms - versionMs) * Pace.Weight,
      steps = steps + 1)
}

object Pace {
  val start: Pace = Pace(None, 0, 0)
  private val Weight = 0.1
}
