package tidelog.spark.index

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import tidelog.spark.format.IndexDocument

/** The checkpoint id of one state store that a commit names. */
final case class NamedId(operator: Long, partition: Int, id: String)

/** A file `commits/N`: Spark's two lines, and the batch's index if the plug-in wrote it.
  *
  * Spark reads the two lines only, so a commit and its index appear as one object.
  */
final case class CommitFile(ids: Vector[NamedId], index: Option[IndexDocument])

object CommitFile {
  private val json = new ObjectMapper

  /** Raises IOException for a commit that is not Spark's, CorruptObjectException for a damaged
    * index line; `where` is the object's name.
    */
  def read(bytes: Array[Byte], where: String): CommitFile = {
    val lines = new String(bytes, UTF_8).split("\n", -1).map(_.trim)
    val index = lines.drop(2).headOption.filter(_.nonEmpty).map(IndexDocument.read(_, where))
    CommitFile(ids(lines, where), index)
  }

  /** The ids in Spark's lines; none when the query has no state or the format has no ids. */
  def ids(bytes: Array[Byte], where: String): Vector[NamedId] =
    ids(new String(bytes, UTF_8).split("\n", -1).map(_.trim), where)

  /** The same commit with its index. */
  def withIndex(bytes: Array[Byte], index: IndexDocument): Array[Byte] =
    bytes ++ ("\n" + IndexDocument.write(index)).getBytes(UTF_8)

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
