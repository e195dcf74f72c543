package tidelog.spark.format

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

import tidelog.spark.{Checks, PrintedChecks}
import tidelog.spark.Checks._

/** Checks of names, msgpack, blocks, segments and index; the argument is the golden folder. */
object FormatChecks {
  def main(arguments: Array[String]): Unit = run(new PrintedChecks, Path.of(arguments(0)))

  def run(checks: Checks, folder: Path): Unit = {
    val golden = (name: String) => Files.readAllBytes(folder.resolve(name))
    nameChecks(checks)
    new MsgPackChecks(checks).run()
    new SegmentChecks(checks, golden("spark_segment_v1.bin")).run()
    new IndexChecks(
      checks,
      new String(golden("spark_commit_v1.txt"), UTF_8),
      new String(golden("spark_roll_up_v1.json"), UTF_8)).run()
    checks.check("every golden file is written the same today") {
      Golden.Files.foreach { case (name, bytes) => equalBytes(golden(name), bytes) }
    }
  }

  private def nameChecks(checks: Checks): Unit = {
    checks.check("names are parsed back") {
      Seq(Golden.Large, Golden.Joined, Golden.Empty).foreach { name =>
        equal(ChangelogName.parse(name.path), Some(name))
        equal(ChangelogName.parse(name.directory, name.version, name.id), Some(name))
      }
    }
    checks.check("other files are not taken for changelogs") {
      Seq(
        "0/3/12.changelog",
        "0/3/12_a.zip",
        "0/3/12_.changelog",
        "03/3/12_a.changelog",
        "0/3/default/12_a.changelog",
        "0/3/a/b/12_a.changelog",
        "0/99999999999/12_a.changelog",
        "0/3/99999999999999999999_a.changelog",
        "x/0/3/12_a.changelog",
        "0/_metadata/12_a.changelog").foreach(path => equal(ChangelogName.parse(path), None))
    }
    checks.check("objects have fixed names") {
      equal(Golden.SegmentName, "0a1b2c3d-1-00000007.seg")
      equal(Golden.OtherSegment, "0a1b2c3d-driver-123456789.seg")
      equal(ObjectNames.rollUp(19), "0000000010.json")
      equal(ObjectNames.rollUp(20), "0000000020.json")
    }
  }
}
