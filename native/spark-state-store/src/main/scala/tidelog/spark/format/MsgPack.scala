package tidelog.spark.format

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.{BufferUnderflowException, ByteBuffer}
import java.nio.charset.StandardCharsets.UTF_8

/** The part of msgpack that footers need: arrays, unsigned integers and strings.
  *
  * Invariants: the shortest encoding is written, so equal values are equal bytes; every value
  * msgpack knows can be skipped, so that fields of later releases do no harm.
  */
object MsgPack {
  final class Malformed(message: String) extends Exception(message)

  final class Writer {
    private val bytes = new ByteArrayOutputStream
    private val out = new DataOutputStream(bytes)

    def array(length: Int): Unit =
      if (length < 16) out.writeByte(0x90 | length)
      else if (length < 0x10000) sized(0xdc, 2, length.toLong)
      else sized(0xdd, 4, length.toLong)

    def unsigned(value: Long): Unit = {
      require(value >= 0, s"$value is negative")
      if (value < 0x80) out.writeByte(value.toInt)
      else if (value < 0x100) sized(0xcc, 1, value)
      else if (value < 0x10000) sized(0xcd, 2, value)
      else if (value < 0x100000000L) sized(0xce, 4, value)
      else sized(0xcf, 8, value)
    }

    def string(value: String): Unit = {
      val encoded = value.getBytes(UTF_8)
      if (encoded.length < 32) out.writeByte(0xa0 | encoded.length)
      else if (encoded.length < 0x100) sized(0xd9, 1, encoded.length.toLong)
      else if (encoded.length < 0x10000) sized(0xda, 2, encoded.length.toLong)
      else sized(0xdb, 4, encoded.length.toLong)
      out.write(encoded)
    }

    def result(): Array[Byte] = bytes.toByteArray

    private def sized(code: Int, width: Int, value: Long): Unit = {
      out.writeByte(code)
      (width - 1 to 0 by -1).foreach(byte => out.writeByte((value >>> (8 * byte)).toInt))
    }
  }

  /** Reads values one after the other; every method raises Malformed. */
  final class Reader(bytes: Array[Byte]) {
    private val in = ByteBuffer.wrap(bytes) // big-endian, as msgpack is

    def atEnd: Boolean = !in.hasRemaining

    def array(): Int = bounded {
      code() match {
        case short if (short & 0xf0) == 0x90 => short & 0x0f
        case 0xdc => uint(2).toInt
        case 0xdd => length(4)
        case other => throw unexpected("an array", other)
      }
    }

    def unsigned(): Long = bounded {
      code() match {
        case small if small < 0x80 => small.toLong
        case sized if sized >= 0xcc && sized <= 0xcf =>
          val value = uint(1 << (sized - 0xcc))
          if (value < 0) throw new Malformed("an integer of 2^63 or more") else value
        case other => throw unexpected("an unsigned integer", other)
      }
    }

    def string(): String = bounded {
      val size = code() match {
        case short if (short & 0xe0) == 0xa0 => short & 0x1f
        case sized if sized >= 0xd9 && sized <= 0xdb => length(1 << (sized - 0xd9))
        case other => throw unexpected("a string", other)
      }
      val start = in.position()
      advance(size)
      new String(bytes, start, size, UTF_8)
    }

    /** Passes over any value. */
    def skip(): Unit = bounded {
      var left = 1L
      while (left > 0) left += skipOne() - 1
    }

    /** Passes over a value without its elements; returns how many elements follow. */
    private def skipOne(): Long = code() match {
      case fixed if fixed < 0x80 || fixed >= 0xe0 => 0
      case map if map < 0x90 => 2L * (map & 0x0f)
      case array if array < 0xa0 => (array & 0x0f).toLong
      case string if string < 0xc0 => advance(string & 0x1f)
      case constant if constant == 0xc0 || constant == 0xc2 || constant == 0xc3 => 0
      case binary if binary >= 0xc4 && binary <= 0xc6 => advance(length(1 << (binary - 0xc4)))
      case ext if ext >= 0xc7 && ext <= 0xc9 => advance(length(1 << (ext - 0xc7)) + 1L)
      case float if float == 0xca || float == 0xcb => advance(4L << (float - 0xca))
      case unsigned if unsigned >= 0xcc && unsigned <= 0xcf => advance(1L << (unsigned - 0xcc))
      case signed if signed >= 0xd0 && signed <= 0xd3 => advance(1L << (signed - 0xd0))
      case fixext if fixext >= 0xd4 && fixext <= 0xd8 => advance((1L << (fixext - 0xd4)) + 1)
      case string if string >= 0xd9 && string <= 0xdb => advance(length(1 << (string - 0xd9)))
      case 0xdc => uint(2)
      case 0xdd => uint(4)
      case 0xde => 2 * uint(2)
      case 0xdf => 2 * uint(4)
      case other => throw unexpected("a value", other)
    }

    private def code(): Int = in.get() & 0xff

    private def uint(width: Int): Long =
      (0 until width).foldLeft(0L)((value, _) => (value << 8) | (in.get() & 0xff))

    private def length(width: Int): Int = {
      val value = uint(width)
      if (value > in.remaining) throw new Malformed(s"a length of $value") else value.toInt
    }

    private def advance(count: Long): Long = {
      if (count > in.remaining) throw new Malformed("the end of the bytes")
      in.position(in.position() + count.toInt)
      0
    }

    private def bounded[T](read: => T): T =
      try read
      catch { case _: BufferUnderflowException => throw new Malformed("the end of the bytes") }

    private def unexpected(wanted: String, code: Int) =
      new Malformed(s"type code ${code.toHexString} instead of $wanted")
  }
}
