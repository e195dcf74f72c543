package tidelog.spark.faults

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.{
  StateStore,
  StateStoreProvider,
  StateStoreProviderId
}

/** Spark's maintenance of the state stores of this JVM, at the moments that a test chooses. */
object Maintenance {
  private type Providers = mutable.HashMap[StateStoreProviderId, StateStoreProvider]

  /** What Spark does of itself every `maintenanceInterval`. */
  def tick(): Unit = providers.values.foreach(_.doMaintenance())

  /** What the end of the process does: all stores are closed, nothing is uploaded. */
  def end(): Unit = StateStore.stop()

  private def providers: Providers = {
    val method = StateStore.getClass.getDeclaredMethods.find(_.getName.endsWith("loadedProviders"))
    method.foreach(_.setAccessible(true))
    method.get.invoke(StateStore).asInstanceOf[Providers]
  }
}
