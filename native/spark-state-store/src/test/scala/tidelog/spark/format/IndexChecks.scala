package tidelog.spark.format

import java.nio.charset.StandardCharsets.UTF_8

import tidelog.spark.Checks
import tidelog.spark.Checks._

/** Checks of the index; `commit` and `rollUp` are the golden files. */
private[format] final class IndexChecks(checks: Checks, commit: String, rollUp: String) {
  private val line = commit.linesIterator.toVector(2)

  def run(): Unit = {
    checks.check("a commit's index line is read") {
      equal(sorted(IndexDocument.read(line, "commits/11")), sorted(Golden.Commit))
    }
    checks.check("Spark's lines of a commit stand before the index") {
      equal(commit.startsWith(Golden.SparkLines + "\n"), true)
    }
    checks.check("a roll-up is read") {
      equal(sorted(IndexDocument.read(rollUp, "roll-up")), sorted(Golden.RollUp))
    }
    checks.check("entries in any order are the same text") {
      val shuffled = Golden.RollUp.copy(entries = Golden.RollUp.entries.reverse)
      equal(IndexDocument.write(shuffled), rollUp)
    }
    checks.check("every flipped bit of an index is found") {
      flips(line.getBytes(UTF_8)).foreach { data =>
        refused("commits/11")(IndexDocument.read(new String(data, UTF_8), "commits/11"))
      }
    }
    checks.check("every truncation of an index is found") {
      truncations(line.getBytes(UTF_8)).foreach { data =>
        refused("commits/11")(IndexDocument.read(new String(data, UTF_8), "commits/11"))
      }
    }
    checks.check("text after an index is found") {
      refused("commits/11")(IndexDocument.read(line + line, "commits/11"))
    }
    checks.check("an index of a newer format is refused by name") {
      refused("commits/11; expected document format")(read("""{"format":2,"new":{}}"""))
    }
    checks.check("fields of a later release do no harm") {
      val body = """{"changelogs":[["0/1",2,"a",9,[[0,44,99,7]],8]],"extra":1,"first":1,""" +
        """"format":1,"kind":"spark-index","last":1,"segments":[["s",200,"more"]]}"""
      val entry =
        IndexEntry(ChangelogName(0, 1, "default", 2, "a"), 9, Vector(Piece("s", 44, 99)))
      equal(read(body), IndexDocument(1, 1, Map("s" -> 200L), Vector(entry)))
    }
    checks.check("an index that is not whole is refused under a good checksum") {
      Seq(
        changelogs("""["0/1",2,"a",9,[[1,44,99]]]"""), // no such segment
        changelogs("""["0/1",2,"a",9,[]]"""),
        changelogs("""["0/1",2,"a",9,[[0,44]]]"""),
        changelogs("""["0/1",3,"a",9,[[0,44,99]]]"""), // of another batch
        changelogs("""["0",2,"a",9,[[0,44,99]]]"""),
        changelogs("""["0/1",2,"a",-9,[[0,44,99]]]"""),
        changelogs("""["0/1","2","a",9,[[0,44,99]]]"""),
        """{"format":1,"kind":"spark-index"}""",
        """{"format":1,"kind":"slot"}""",
        "[]").foreach(body => refused("commits/11 is damaged")(read(body)))
    }
    checks.check("a piece in a segment of unknown length is not written") {
      val failed =
        try {
          IndexDocument.write(Golden.Commit.copy(segments = Map.empty))
          false
        } catch { case _: IllegalArgumentException => true }
      equal(failed, true)
    }
  }

  private def changelogs(entries: String): String =
    s"""{"changelogs":[$entries],"first":1,"format":1,"kind":"spark-index","last":1,""" +
      """"segments":[["s",200]]}"""

  private def read(body: String): IndexDocument = {
    val crc = Crc32c.hex(Crc32c.of(body.getBytes(UTF_8)))
    IndexDocument.read(s"""{ "crc32c": "$crc", "body": $body }""", "commits/11")
  }

  private def sorted(document: IndexDocument): IndexDocument =
    document.copy(entries = document.entries.sortBy(_.name))
}
