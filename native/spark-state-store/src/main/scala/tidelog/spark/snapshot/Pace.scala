package tidelog.spark.snapshot

/** How often a state store commits; immutable.
  *
  * @param last the newest version and when it was begun, in milliseconds
  * @param steps milliseconds from one version to the next, of the newest steps
  * @param count how many steps there have been
  */
final case class Pace(last: Option[(Long, Long)], steps: Vector[Long], count: Int) {

  /** A version is begun. Only the step from the version before it says how long one takes. */
  def seen(version: Long, nowMs: Long): Pace = {
    val step = last.collect { case (before, atMs) if version == before + 1 => nowMs - atMs }
    val next = copy(last = Some((version, nowMs)))
    step.fold(next) { ms =>
      next.copy(steps = (steps :+ ms).takeRight(Pace.Steps), count = count + 1)
    }
  }

  /** Milliseconds of a version, once so many steps have been seen: their median, because a pause of
    * the input says nothing about the batches that follow, and neither do seconds in which an
    * executor is slow: all its stores would take a snapshot at once.
    */
  def after(needed: Int): Option[Double] =
    Option.when(count > 0 && count >= needed)(steps.sorted.apply(steps.size / 2).toDouble)
}

object Pace {
  val start: Pace = Pace(None, Vector.empty, 0)
  private val Steps = 60
}
