package tidelog.spark.snapshot

import java.util.{Collections, WeakHashMap}

import scala.jdk.CollectionConverters._

/** The state stores of this JVM that write, for its metrics. */
object OpenStores {
  // Weak, because not every version of Spark closes the file manager of a store that it closes.
  private val open =
    Collections.newSetFromMap(new WeakHashMap[StoreSnapshots, java.lang.Boolean])

  def add(store: StoreSnapshots): Unit = synchronized(open.add(store))

  def remove(store: StoreSnapshots): Unit = synchronized(open.remove(store))

  /** The largest lag, in versions; 0 without a store. */
  def lag: Long = all.map(_.lag).maxOption.getOrElse(0L)

  /** How many fall behind with their uploads. */
  def late: Long = all.count(_.isLate).toLong

  private def all: Vector[StoreSnapshots] = synchronized(open.asScala.toVector)
}
