package tidelog.spark.snapshot

import java.lang.reflect.Method

import scala.collection.concurrent.TrieMap
import scala.collection.mutable
import scala.ref.WeakReference
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

/** Gives each store of this JVM its phase, through the field in which Spark's RocksDB remembers its
  * last snapshot; that field decides nothing else.
  *
  * Invariants: if Spark's internals are not as expected, snapshots come when Spark would take them,
  * and one warning says so; a provider that keeps its store to itself concerns its own stores only.
  */
object SnapshotScheduler extends Logging {
  @volatile private var broken = false

  /** Called when Spark opens the changelog of a version, which is before it decides; what it will
    * decide.
    */
  def schedule(file: Path, name: ChangelogName, run: String, intervalMs: Long): SnapshotTurn =
    if (broken) SnapshotTurn.NotYet
    else {
      try set(file.getParent, name, run, intervalMs)
      catch {
        case NonFatal(error) =>
          broken = true
          logWarning(
            "tidelog: snapshots are not staggered, because this Spark keeps its state stores " +
              "differently; all else works. Next: report your Spark version (a retry is safe).",
            error)
          SnapshotTurn.NotYet
      }
    }

  /** A state store as it is known here, in one run of its query; one task at a time writes it. */
  private final class Followed(
      val run: String,
      val stores: Seq[WeakReference[RocksDB]],
      val pace: Pace)

  private val followed = TrieMap.empty[Path, Followed]
  private val closedProviders = TrieMap.empty[Class[_], Unit]

  private def set(
      directory: Path,
      name: ChangelogName,
      run: String,
      intervalMs: Long): SnapshotTurn = {
    val before = followed.get(directory).filter(_.run == run)
    val pace = before.fold(Pace.start)(_.pace).seen(name.version, System.nanoTime() / 1000000)
    def period(store: RocksDB) =
      SnapshotPeriod.versions(store.conf.minDeltasForSnapshot, intervalMs, pace.versionMs)
    def due(store: RocksDB) =
      SnapshotPhase.due(name.version, period(store), name.operator, name.partition, name.store)

    val remembered = before.fold(Seq.empty[RocksDB])(_.stores.flatMap(_.get))
    // Spark holds one lock around all its stores while it opens one, so it is asked rarely: again
    // when a snapshot is due, because a store that was closed and opened is another object.
    val current =
      if (remembered.isEmpty || remembered.exists(due)) stores(directory, name).toSeq
      else remembered
    followed.put(directory, new Followed(run, current.map(WeakReference(_)), pace))
    val turns = current.map { store =>
      val minimum = store.conf.minDeltasForSnapshot
      val last = SnapshotPhase.lastSnapshot(name.version, minimum, due(store))
      setter.invoke(store, java.lang.Long.valueOf(last))
      SnapshotTurn.of(name.version, minimum, due(store))
    }
    turns.headOption.getOrElse(SnapshotTurn.NotYet)
  }

  private def stores(directory: Path, name: ChangelogName): Iterable[RocksDB] = {
    val providers = loadedProviders
    val found = providers.synchronized {
      providers.collect {
        case (id, provider)
            if id.storeId.partitionId == name.partition &&
              id.storeId.operatorId == name.operator && id.storeId.storeName == name.store &&
              samePath(id.storeId.storeCheckpointLocation(), directory) =>
          provider
      }
    }
    found.flatMap(rocksDB)
  }

  // Spark keeps the provider's type to itself; its store's type is public.
  private[spark] def rocksDB(provider: StateStoreProvider): Option[RocksDB] = {
    val kind = provider.getClass
    val method = kind.getMethods.find { candidate =>
      candidate.getName == "rocksDB" && candidate.getParameterCount == 0 &&
      classOf[RocksDB].isAssignableFrom(candidate.getReturnType)
    }
    if (method.isEmpty && kind.getName == SparksProvider) {
      throw new NoSuchMethodException(s"rocksDB of $SparksProvider")
    }
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

  private def samePath(one: Path, other: Path): Boolean =
    one.toUri.getPath == other.toUri.getPath

  private type Providers = mutable.HashMap[StateStoreProviderId, StateStoreProvider]

  private lazy val providersMethod: Method = accessible(StateStore.getClass, "loadedProviders")

  private def loadedProviders: Providers =
    providersMethod.invoke(StateStore).asInstanceOf[Providers]

  // Its name is mangled when the compiler has had to widen the field's access.
  private lazy val setter: Method = {
    val method = classOf[RocksDB].getDeclaredMethods
      .find(_.getName.endsWith("lastSnapshotVersion_$eq"))
      .getOrElse(throw new NoSuchMethodException("lastSnapshotVersion of RocksDB"))
    method.setAccessible(true)
    method
  }

  private def accessible(owner: Class[_], name: String): Method = {
    val method = owner.getDeclaredMethods
      .find(candidate => candidate.getName.endsWith(name) && candidate.getParameterCount == 0)
      .getOrElse(throw new NoSuchMethodException(s"$name of ${owner.getName}"))
    method.setAccessible(true)
    method
  }
}
