package tidelog.spark.storage

import scala.collection.concurrent.TrieMap

import org.apache.hadoop.fs.Path

/** The newest file this process has created in each directory of files named 0, 1, 2 and so on.
  *
  * Invariant: a file is `isNext` only if the one before it was created here, and nothing after it.
  */
private[spark] final class NumberedFiles {
  private val newest = TrieMap.empty[Path, Long]

  def created(file: Path): Unit =
    number(file).foreach(newest.put(file.getParent, _))

  def isNext(file: Path): Boolean =
    number(file).exists(next => newest.get(file.getParent).contains(next - 1))

  private def number(file: Path): Option[Long] = file.getName.toLongOption.filter(_ >= 0)
}
