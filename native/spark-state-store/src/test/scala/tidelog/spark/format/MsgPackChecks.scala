package tidelog.spark.format

import tidelog.spark.Checks
import tidelog.spark.Checks._

/** Checks of msgpack. */
private[format] final class MsgPackChecks(checks: Checks) {
  def run(): Unit = {
    checks.check("integers of every size are read back and as short as can be") {
      val sizes = Seq(
        0L -> 1, 127L -> 1, 128L -> 2, 255L -> 2, 256L -> 3, 65535L -> 3, 65536L -> 5,
        0xffffffffL -> 5, 0x100000000L -> 9, Long.MaxValue -> 9)
      sizes.foreach { case (value, size) =>
        val bytes = written(_.unsigned(value))
        equal(bytes.length, size)
        equal(new MsgPack.Reader(bytes).unsigned(), value)
      }
    }
    checks.check("texts and arrays of every size are read back") {
      Seq(0, 31, 32, 255, 256, 65535, 65536).foreach { size =>
        equal(new MsgPack.Reader(written(_.string("x" * size))).string(), "x" * size)
      }
      Seq(0, 15, 16, 65535).foreach { size =>
        equal(new MsgPack.Reader(written(_.array(size))).array(), size)
      }
    }
    checks.check("every kind of value is skipped") {
      val values = Seq(
        "c0", "c2", "c3", "e0", "d0ff", "d1ffff", "d2ffffffff", "d3ffffffffffffffff", "ca00000000",
        "cb0000000000000000", "a161", "d90161", "c40161", "c5000161", "9201c0", "82a16101a16202",
        "dc0002c0c0", "de0001a16101", "d401ff", "d801" + "00" * 16, "c70201ffff")
      values.foreach { hex =>
        val reader = new MsgPack.Reader(bytesOf(hex + "2a"))
        reader.skip()
        equal(reader.unsigned(), 42L)
        equal(reader.atEnd, true)
      }
    }
    checks.check("truncated and foreign values are malformed") {
      Seq("", "cd00", "d9ff61", "dbffffffff", "dd7fffffff", "a361", "92", "c1").foreach { hex =>
        val failed =
          try {
            new MsgPack.Reader(bytesOf(hex)).skip()
            false
          } catch { case _: MsgPack.Malformed => true }
        equal(failed, true)
      }
    }
  }

  private def written(write: MsgPack.Writer => Unit): Array[Byte] = {
    val out = new MsgPack.Writer
    write(out)
    out.result()
  }

  private def bytesOf(hex: String): Array[Byte] =
    hex.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray
}
