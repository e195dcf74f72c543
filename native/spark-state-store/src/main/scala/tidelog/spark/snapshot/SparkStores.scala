package tidelog.spark.snapshot

import java.lang.reflect.Method

import scala.collection.concurrent.TrieMap
import scala.collection.mutable
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{
  RocksDB,
  StateStore,
  StateStoreProvider,
  StateStoreProviderId
}

import tidelog.spark.format.ChangelogName

/** All that the plug-in uses of Spark's private parts: the map of this JVM's state stores, and the
  * field in which Spark's RocksDB remembers its last snapshot, which decides nothing else.
  *
  * Invariants: nothing here throws; what this Spark lacks is found when an executor starts, one
  * warning says so, and then snapshots come when Spark alone would take them.
  */
object SparkStores extends Logging {
  @volatile private var missing = false
  private val closedProviders = TrieMap.empty[Class[_], Unit]

  /** Looks for the private parts; warns if one is not there. */
  def probe(): Unit = guarded(()) {
    providersMethod
    setter
    Class.forName(SparksProvider, false, classOf[RocksDB].getClassLoader).getMethod("rocksDB")
  }

  /** The store whose directory this is, if it can be reached. Spark holds one lock around all its
    * stores while it opens one, so ask once.
    */
  def find(directory: Path, name: ChangelogName): Option[RocksDB] =
    guarded(Option.empty[RocksDB])(provider(directory, name).flatMap(rocksDB))

  /** Says what the last snapshot was; whether that was possible. */
  def setLastSnapshot(store: RocksDB, version: Long): Boolean = guarded(false) {
    setter.invoke(store, java.lang.Long.valueOf(version))
    true
  }

  // Spark keeps the provider's type to itself; its store's type is public.
  private[spark] def rocksDB(provider: StateStoreProvider): Option[RocksDB] = {
    val kind = provider.getClass
    val method = Try(kind.getMethod("rocksDB")).toOption
      .filter(found => classOf[RocksDB].isAssignableFrom(found.getReturnType))
    if (method.isEmpty && closedProviders.put(kind, ()).isEmpty) {
      logWarning(unreachable(kind.getName))
    }
    method.map(_.invoke(provider).asInstanceOf[RocksDB])
  }

  private[spark] def unreachable(provider: String): String =
    s"tidelog: the snapshots of stores of $provider are not staggered, because it has no method " +
      "rocksDB that returns its store; those of other providers are, and all else works. Next: " +
      s"nothing, or use $SparksProvider (a retry is safe)."

  private val SparksProvider =
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

  private def guarded[T](without: T)(work: => T): T =
    if (missing) without
    else {
      try work
      catch {
        case error @ (NonFatal(_) | _: LinkageError) =>
          missing = true
          logWarning(
            "tidelog: snapshots are not staggered and come every minDeltasForSnapshot batches, " +
              "because this Spark keeps its state stores differently; all else works. Next: " +
              "report your Spark version (a retry is safe).",
            error)
          without
      }
    }

  private def provider(directory: Path, name: ChangelogName): Option[StateStoreProvider] = {
    val providers = providersMethod.invoke(StateStore).asInstanceOf[Providers]
    providers.synchronized {
      providers.collectFirst {
        case (id, provider)
            if id.storeId.partitionId == name.partition &&
              id.storeId.operatorId == name.operator && id.storeId.storeName == name.store &&
              samePath(id.storeId.storeCheckpointLocation(), directory) =>
          provider
      }
    }
  }

  private def samePath(one: Path, other: Path): Boolean =
    one.toUri.getPath == other.toUri.getPath

  private type Providers = mutable.HashMap[StateStoreProviderId, StateStoreProvider]

  private lazy val providersMethod: Method =
    accessible(StateStore.getClass, "loadedProviders", parameters = 0)

  private lazy val setter: Method =
    accessible(classOf[RocksDB], "lastSnapshotVersion_$eq", parameters = 1)

  // A name is mangled where the compiler has had to widen the access.
  private def accessible(owner: Class[_], name: String, parameters: Int): Method = {
    val method = owner.getDeclaredMethods
      .find(found => found.getName.endsWith(name) && found.getParameterCount == parameters)
      .getOrElse(throw new NoSuchMethodException(s"$name of ${owner.getName}"))
    method.setAccessible(true)
    method
  }
}
