package tidelog.spark.format

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JacksonException
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/** Reads the body of an index document whose checksum has passed.
  *
  * Invariant: what it returns is whole: every number is there and in range, every piece lies in a
  * segment of the document, every changelog belongs to one of its batches.
  */
private[format] final class IndexBody(where: String) {

  def read(bytes: Array[Byte]): IndexDocument = {
    val body =
      try IndexBody.mapper.readTree(bytes)
      catch { case error: JacksonException => throw wrong("JSON", error.getOriginalMessage) }
    checkFormat(body)
    val first = number(body.path("first"), "first")
    val last = number(body.path("last"), "last")
    val segments = elements(body.path("segments"), "segments", 0).map { segment =>
      val fields = elements(segment, "a segment", 2)
      (text(fields(0), "a segment's name"), number(fields(1), "a segment's length"))
    }
    val entries = elements(body.path("changelogs"), "changelogs", 0).map(entry(_, segments))
    val strange = entries.find(e => e.name.version <= first || e.name.version > last + 1)
    strange.foreach(e => throw wrong(s"changelogs of batches $first to $last", e.name.path))
    IndexDocument(first, last, segments.toMap, entries)
  }

  private def checkFormat(body: JsonNode): Unit = {
    val format = number(body.path("format"), "format")
    if (format > IndexDocument.Format) {
      throw new FormatVersionException(
        where, s"document format <= ${IndexDocument.Format}", s"format $format")
    }
    val kind = text(body.path("kind"), "kind")
    if (kind != IndexDocument.Kind) throw wrong(s"a document of kind ${IndexDocument.Kind}", kind)
  }

  private def entry(node: JsonNode, segments: Vector[(String, Long)]): IndexEntry = {
    val fields = elements(node, "a changelog", 5)
    val directory = text(fields(0), "a directory")
    val version = number(fields(1), "a version")
    val id = text(fields(2), "a checkpoint id")
    val name = ChangelogName
      .parse(directory, version, id)
      .getOrElse(throw wrong("the name of a changelog", s"$directory, $version, $id"))
    val pieces = elements(fields(4), s"pieces of ${name.path}", 1).map(piece(_, segments))
    IndexEntry(name, number(fields(3), s"the length of ${name.path}"), pieces)
  }

  private def piece(node: JsonNode, segments: Vector[(String, Long)]): Piece = {
    val numbers = elements(node, "a piece", 3).take(3).map(number(_, "a piece's place"))
    val (segment, offset, length) = (numbers(0), numbers(1), numbers(2))
    if (segment >= segments.length || !length.isValidInt) {
      throw wrong(s"a piece in one of ${segments.length} segments", node.toString)
    }
    Piece(segments(segment.toInt)._1, offset, length.toInt)
  }

  /** The elements of an array; those of a later release after the known ones do no harm. */
  private def elements(node: JsonNode, what: String, atLeast: Int): Vector[JsonNode] =
    if (node.isArray && node.size >= atLeast) node.elements.asScala.toVector
    else throw wrong(s"$what: an array of $atLeast or more", node.toString)

  private def number(node: JsonNode, what: String): Long =
    if (node.isIntegralNumber && node.canConvertToLong && node.asLong >= 0) node.asLong
    else throw wrong(s"$what: a number from 0", node.toString)

  private def text(node: JsonNode, what: String): String =
    if (node.isTextual) node.asText else throw wrong(s"$what: a string", node.toString)

  private def wrong(expected: String, found: String) =
    CorruptObjectException.inIndex(where, expected, s"'${found.take(80)}'")
}

private object IndexBody {
  val mapper = new ObjectMapper
}
