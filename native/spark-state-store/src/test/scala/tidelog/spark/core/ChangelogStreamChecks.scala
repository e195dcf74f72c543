package tidelog.spark.core

import tidelog.spark.executor.{ChangelogStream, PieceSink}
import tidelog.spark.Checks
import tidelog.spark.Checks.equal

final class ChangelogStreamChecks(checks: Checks) {
  private final class Recorder(val pieceBytes: Int) extends PieceSink {
    var pieces = Vector.empty[(String, Boolean)]
    var ends = Vector.empty[Boolean]
    var full = false

    override def handOver(bytes: Array[Byte], last: Boolean): Unit = {
      if (full) throw new java.io.IOException("no room")
      pieces :+= ((new String(bytes), last))
    }

    override def end(completed: Boolean): Unit = ends :+= completed
  }

  def run(): Unit = {
    checks.check("a small changelog is handed over whole when it is closed, once") {
      val sink = new Recorder(100)
      val stream = new ChangelogStream(sink)
      stream.write("abc".getBytes)
      equal(sink.pieces, Vector.empty)
      stream.close()
      stream.close()
      equal(sink.pieces, Vector(("abc", true)))
      equal(sink.ends, Vector(true))
    }
    checks.check("a large changelog leaves in pieces while it is written") {
      val sink = new Recorder(4)
      val stream = new ChangelogStream(sink)
      stream.write("abcd".getBytes)
      stream.write('e'.toInt)
      equal(sink.pieces, Vector(("abcd", false)))
      stream.close()
      equal(sink.pieces, Vector(("abcd", false), ("e", true)))
    }
    checks.check("after a cancel nothing is handed over, whatever is still written or closed") {
      val sink = new Recorder(2)
      val stream = new ChangelogStream(sink)
      stream.write('a'.toInt)
      stream.cancel()
      stream.write("bcd".getBytes)
      stream.close()
      stream.cancel()
      equal(sink.pieces, Vector.empty)
      equal(sink.ends, Vector(false))
    }
    checks.check("a hand-over that fails ends the changelog as not completed") {
      val sink = new Recorder(100)
      val stream = new ChangelogStream(sink)
      stream.write('a'.toInt)
      sink.full = true
      val failure =
        try {
          stream.close()
          None
        } catch { case error: java.io.IOException => Some(error.getMessage) }
      equal(failure, Some("no room"))
      equal(sink.ends, Vector(false))
    }
  }
}
