package tidelog.spark.format

import java.util.Locale

/** The name of one changelog file of a Spark state store.
  *
  * Invariant: `path` and `ChangelogName.parse` are inverse to each other; `path` is relative to the
  * checkpoint's `state` directory.
  */
final case class ChangelogName(
    operator: Long,
    partition: Int,
    store: String,
    version: Long,
    id: String) {

  /** Operator and store, as the footer of a segment names them. */
  def operatorId: String = if (isDefaultStore) operator.toString else s"$operator/$store"

  /** The directory of the state store; the default store has none of its own. */
  def directory: String =
    if (isDefaultStore) s"$operator/$partition" else s"$operator/$partition/$store"

  /** The batch that wrote it. */
  def batch: Long = version - 1

  def file: String = s"${version}_$id.changelog"

  def path: String = s"$directory/$file"

  private def isDefaultStore = store == ChangelogName.DefaultStore
}

object ChangelogName {
  val DefaultStore = "default"

  private val Pattern = "([0-9]+)/([0-9]+)(?:/([^/]+))?/([0-9]+)_([^/]+)\\.changelog".r

  /** The name in a path relative to `state`; None for every other file, such as a changelog
    * without a checkpoint id.
    */
  def parse(relative: String): Option[ChangelogName] = relative match {
    case Pattern(operator, partition, store, version, id) =>
      for {
        operatorNumber <- operator.toLongOption
        partitionNumber <- partition.toIntOption
        versionNumber <- version.toLongOption
        name = ChangelogName(
          operatorNumber,
          partitionNumber,
          Option(store).getOrElse(DefaultStore),
          versionNumber,
          id)
        if name.path == relative // not so with leading zeros or a directory `default`
      } yield name
    case _ => None
  }

  /** The name that a directory, version and id make. */
  def parse(directory: String, version: Long, id: String): Option[ChangelogName] =
    parse(s"$directory/${version}_$id.changelog").filter(name =>
      name.directory == directory && name.version == version && name.id == id)

  private val utf8: Ordering[String] = (one: String, other: String) =>
    java.util.Arrays.compareUnsigned(one.getBytes("UTF-8"), other.getBytes("UTF-8"))

  /** By directory, version and id; strings by their UTF-8 bytes. */
  implicit val ordering: Ordering[ChangelogName] =
    Ordering
      .by[ChangelogName, String](_.directory)(utf8)
      .orElse(Ordering.by[ChangelogName, Long](_.version))
      .orElse(Ordering.by[ChangelogName, String](_.id)(utf8))
}

/** Names of the objects below a checkpoint's directory. */
object ObjectNames {
  val LogDirectory = "_tidelog"

  /** Batches whose index one roll-up holds. */
  val BatchesPerRollUp = 10

  private val Commits = "commits/"

  /** The segment that lies in the commit of a batch, as an index names it. */
  def inCommit(batch: Long): String = s"$Commits$batch"

  /** Whether an index names a segment within a commit, and not an object of its own. */
  def isInCommit(segment: String): Boolean = segment.startsWith(Commits)

  /** A segment, without its directory `segments`. */
  def segment(run: String, executor: String, counter: Long): String =
    "%s-%s-%08d.seg".formatLocal(Locale.ROOT, run, executor, counter)

  /** The roll-up of the window that a batch is in, without its directory `index`. */
  def rollUp(batch: Long): String =
    "%010d.json".formatLocal(Locale.ROOT, batch - batch % BatchesPerRollUp)
}
