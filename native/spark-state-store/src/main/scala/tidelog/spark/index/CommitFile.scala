package tidelog.spark.index

import java.io.IOException
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.util.Base64

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import tidelog.spark.format.{ChangelogName, CorruptObjectException, IndexDocument}

/** The checkpoint id of one state store that a commit names. */
final case class NamedId(operator: Long, partition: Int, id: String)

/** A file `commits/N`: Spark's two lines, and the batch's index if the plug-in wrote it; a fourth
  * line is a segment, in Base64, since Spark decodes text somewhat further than the lines it reads.
  *
  * Spark reads the two lines only, so a commit, its index and its segment appear as one object.
  */
final case class CommitFile(ids: Vector[NamedId], index: Option[IndexDocument]) {

  /** The id that belongs where Spark's line has that of `name`, if the index shows that the line is
    * damaged: the index has a checksum, the line has none.
    */
  def misnamed(name: ChangelogName): Option[String] = {
    def named(id: String) = ids.contains(NamedId(name.operator, name.partition, id))
    val others = index.toVector.flatMap(_.entries).map(_.name).filter { other =>
      other.directory == name.directory && other.version == name.version
    }
    if (named(name.id) && !others.contains(name)) others.map(_.id).find(!named(_)) else None
  }
}

object CommitFile {
  private val json = new ObjectMapper

  /** Raises IOException for a commit that is not Spark's, CorruptObjectException for a damaged
    * index line, which is the third; `where` is the object's name.
    */
  def read(bytes: Array[Byte], where: String): CommitFile = {
    val lines = new String(bytes, UTF_8).split("\n", -1).map(_.trim)
    val line = lines.lift(2).filter(_.nonEmpty)
    val index = line.map(IndexDocument.read(_, s"$where, line 3"))
    CommitFile(ids(lines, where), index)
  }

  /** The ids in Spark's lines; none when the query has no state or the format has no ids. */
  def ids(bytes: Array[Byte], where: String): Vector[NamedId] =
    ids(new String(bytes, UTF_8).split("\n", -1).map(_.trim), where)

  /** The error for a commit whose line 2 has one id where line 3 has another one. */
  def misnamed(where: String, found: String, right: String): CorruptObjectException =
    new CorruptObjectException(
      s"commit $where is damaged on line 2, Spark's own",
      s"the checkpoint id $right, which the checked index on line 3 has",
      found,
      s"stop the query, write $right in the place of $found, and start the query again")

  /** The same commit with its index. */
  def withIndex(bytes: Array[Byte], index: IndexDocument): Array[Byte] =
    bytes ++ ("\n" + IndexDocument.write(index)).getBytes(UTF_8)

  /** The same commit, which has its index, with a segment. */
  def withSegment(bytes: Array[Byte], segment: Array[Byte]): Array[Byte] =
    bytes ++ "\n".getBytes(US_ASCII) ++ Base64.getEncoder.encode(segment)

  /** The segment in a commit, whatever the lines before it say; raises CorruptObjectException for
    * one that is damaged, `where` is the object's name.
    */
  def segment(bytes: Array[Byte], where: String): Option[Array[Byte]] =
    new String(bytes, UTF_8).split("\n", -1).lift(3).map(_.trim).filter(_.nonEmpty).map { line =>
      try Base64.getDecoder.decode(line)
      catch {
        case error: IllegalArgumentException =>
          throw new CorruptObjectException(
            s"commit $where is damaged on line 4", "a segment in Base64", error.getMessage,
            "bring it back from a backup, or start the query at a batch that does not need it")
      }
    }

  private def ids(lines: Array[String], where: String): Vector[NamedId] =
    lines.lift(1).filter(_.nonEmpty).fold(Vector.empty[NamedId]) { line =>
      try operators(json.readTree(line).path("stateUniqueIds"))
      catch {
        case NonFatal(error) =>
          throw new IOException(
            s"commit $where; expected Spark's JSON on line 2; found '${line.take(80)}'. Next: " +
              s"restore it from a backup or use an earlier batch (do not retry before that).",
            error)
      }
    }

  private def operators(node: JsonNode): Vector[NamedId] =
    node.properties.asScala.toVector.flatMap { operator =>
      operator.getValue.elements.asScala.zipWithIndex.flatMap { case (stores, partition) =>
        stores.elements.asScala
          .filter(_.isTextual)
          .map(id => NamedId(operator.getKey.toLong, partition, id.asText))
      }
    }
}
