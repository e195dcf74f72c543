package tidelog.spark.format

import java.io.StringWriter
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays

import com.fasterxml.jackson.core.{JacksonException, JsonFactory, JsonGenerator, JsonToken}

/** One changelog in the index: `bytes` of content in `pieces`, in order. */
final case class IndexEntry(name: ChangelogName, bytes: Long, pieces: Vector[Piece])

/** Where the changelogs of the batches [first, last] lie; `segments` are those that pieces name,
  * objects or within a commit, with their lengths in bytes.
  */
final case class IndexDocument(
    first: Long,
    last: Long,
    segments: Map[String, Long],
    entries: Vector[IndexEntry]) {

  /** The segments that are objects of their own. */
  def apart: Map[String, Long] =
    segments.filterNot { case (name, _) => ObjectNames.isInCommit(name) }

  /** What it says of the batches before this one. */
  def before(batch: Long): IndexDocument =
    if (last < batch) this
    else {
      val kept = entries.filter(_.name.batch < batch)
      val named = kept.flatMap(_.pieces.map(_.segment)).toSet
      IndexDocument(first, batch - 1, segments.filter { case (name, _) => named(name) }, kept)
    }
}

/** The stored form: docs/internals/format.md, "Spark checkpoints".
  *
  * Invariants: equal documents are equal text, whatever the order of their entries; no field is
  * looked at before checksum and version have passed.
  */
object IndexDocument {
  private[format] val Format = 1
  private[format] val Kind = "spark-index"
  private[format] val json = new JsonFactory

  /** One line, without the end of line; raises IllegalArgumentException if a piece lies in a
    * segment whose length is not given.
    */
  def write(document: IndexDocument): String = {
    val body = bodyOf(document)
    s"""{"body":$body,"crc32c":"${Crc32c.hex(Crc32c.of(body.getBytes(UTF_8)))}"}"""
  }

  /** Raises CorruptObjectException and FormatVersionException, both naming `where`. */
  def read(line: String, where: String): IndexDocument = {
    val bytes = line.getBytes(UTF_8)
    val (body, checksum) =
      try envelope(bytes)
      catch {
        case error: JacksonException =>
          throw CorruptObjectException.inIndex(
            where, "a checked JSON document", error.getOriginalMessage)
      }
    val found = Crc32c.hex(Crc32c.of(body))
    if (found != checksum) throw CorruptObjectException.inIndex(where, s"CRC32C $checksum", found)
    new IndexBody(where).read(body)
  }

  /** The bytes of `body` exactly as they stand, and what the checksum should be. */
  private def envelope(bytes: Array[Byte]): (Array[Byte], String) = {
    val parser = json.createParser(bytes)
    var body = Array.emptyByteArray
    var checksum = "none"
    if (parser.nextToken() == JsonToken.START_OBJECT) {
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val field = parser.currentName()
        parser.nextToken()
        val start = parser.currentTokenLocation().getByteOffset.toInt
        if (field == "crc32c") checksum = parser.getText
        parser.skipChildren()
        val end = parser.currentLocation().getByteOffset.toInt
        if (field == "body") body = Arrays.copyOfRange(bytes, start, end)
      }
      if (parser.nextToken() != null) checksum = "at the end of the text"
    }
    (body, checksum)
  }

  private def bodyOf(document: IndexDocument): String = {
    val text = new StringWriter
    val out = json.createGenerator(text)
    val segments = document.segments.toVector.sorted
    val numbers = segments.map(_._1).zipWithIndex.toMap
    out.writeStartObject() // keys are sorted
    array(out, "changelogs", document.entries.sortBy(_.name))(writeEntry(out, _, numbers))
    out.writeNumberField("first", document.first)
    out.writeNumberField("format", Format)
    out.writeStringField("kind", Kind)
    out.writeNumberField("last", document.last)
    array(out, "segments", segments) { case (name, bytes) =>
      out.writeString(name)
      out.writeNumber(bytes)
    }
    out.writeEndObject()
    out.close()
    text.toString
  }

  private def writeEntry(out: JsonGenerator, entry: IndexEntry, numbers: Map[String, Int]): Unit = {
    out.writeString(entry.name.directory)
    out.writeNumber(entry.name.version)
    out.writeString(entry.name.id)
    out.writeNumber(entry.bytes)
    elements(out, entry.pieces) { piece =>
      require(numbers.contains(piece.segment), s"no length is given for ${piece.segment}")
      out.writeNumber(numbers(piece.segment))
      out.writeNumber(piece.offset)
      out.writeNumber(piece.length)
    }
  }

  private def array[T](out: JsonGenerator, field: String, all: Seq[T])(write: T => Unit): Unit = {
    out.writeFieldName(field)
    elements(out, all)(write)
  }

  /** An array of arrays. */
  private def elements[T](out: JsonGenerator, all: Seq[T])(write: T => Unit): Unit = {
    out.writeStartArray()
    all.foreach { element =>
      out.writeStartArray()
      write(element)
      out.writeEndArray()
    }
    out.writeEndArray()
  }
}
