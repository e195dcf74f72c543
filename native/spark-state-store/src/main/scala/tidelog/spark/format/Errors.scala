package tidelog.spark.format

import java.io.IOException

/** Stored bytes are not what was written: truncated, bit-flipped or of another kind.
  *
  * The message names the object, what was expected, what was found and what to do next. A retry is
  * safe: reading changes nothing.
  */
class CorruptObjectException(
    val what: String,
    val expected: String,
    val found: String,
    val action: String)
    extends IOException(FormatError.message(what, expected, found, action))

object CorruptObjectException {

  /** The error for bytes of the object or place `where`. */
  def at(where: String, expected: String, found: String): CorruptObjectException =
    new CorruptObjectException(
      s"$where is damaged",
      expected,
      found,
      "bring the object back from a backup, or restart the query from a batch that does not " +
        "need it")

  /** The error for an index line or a roll-up `where`: other objects say the same as it did. */
  def inIndex(where: String, expected: String, found: String): CorruptObjectException =
    new CorruptObjectException(
      s"$where is damaged",
      expected,
      found,
      "nothing has to be done, the segments' footers say the same; a restarted query writes the " +
        "roll-up of these batches again, and one that stays damaged is needed by none: delete it")
}

/** The bytes are in a format that only a newer release writes; nothing was read or changed. */
class FormatVersionException(val what: String, val expected: String, val found: String)
    extends IOException(
      FormatError.message(
        what,
        expected,
        found,
        "use the tidelog release that wrote it, or a newer one"))

private[spark] object FormatError {
  def message(what: String, expected: String, found: String, action: String): String =
    s"$what; expected $expected; found ${withoutStop(found)}. Next: $action (a retry is safe)."

  /** Messages of libraries end with a full stop, or with the end of a line. */
  def withoutStop(text: String): String = text.replaceAll("[\\s.]+$", "")

  /** Checks magic and version, which keep their place in every version. */
  def checkMagic(where: String, magic: Int, expected: Int, version: Int, newest: Int): Unit = {
    if (magic != expected) {
      throw CorruptObjectException.at(where, s"magic ${text(expected)}", text(magic))
    }
    if (version == 0) throw CorruptObjectException.at(where, "a format version from 1", "0")
    if (version > newest) {
      throw new FormatVersionException(where, s"format version <= $newest", s"version $version")
    }
  }

  def checkCrc(where: String, expected: Int, found: Int): Unit =
    if (expected != found) {
      throw CorruptObjectException.at(
        where, s"CRC32C ${Crc32c.hex(expected)}", Crc32c.hex(found))
    }

  /** The four bytes of a little-endian magic, in hexadecimal digits. */
  private def text(magic: Int): String = Crc32c.hex(Integer.reverseBytes(magic))
}
