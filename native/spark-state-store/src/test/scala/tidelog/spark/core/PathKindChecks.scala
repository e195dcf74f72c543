package tidelog.spark.core

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import tidelog.spark.Checks
import tidelog.spark.format.ChangelogName
import tidelog.spark.Checks.equal
import tidelog.spark.layout.{CheckpointRoot, PathKind}
import tidelog.spark.layout.PathKind.{Changelog, ChangelogChecksum, Commit, Other, Snapshot, StoreDirectory}
import tidelog.spark.storage.NumberedFiles

final class PathKindChecks(checks: Checks) {
  private val root = new Path("s3a://bucket/a b/state/query")
  private val name = ChangelogName(0, 12, "default", 7, "id")
  private val joined = name.copy(store = "left-keyToNumValues")

  def run(): Unit = {
    checks.check("changelogs with an id are known wherever the checkpoint lies") {
      Seq(name, joined).foreach { one =>
        val file = new Path(root, s"state/${one.path}")
        equal[PathKind](PathKind.of(file), Changelog(root, one))
        equal[PathKind](PathKind.of(new Path(s"$file.crc")), ChangelogChecksum(root, one))
        equal(PathKind.storeDirectory(file.getParent), Some(StoreDirectory(root, one.directory)))
      }
    }
    checks.check("commits are known by their number") {
      equal[PathKind](PathKind.of(new Path(root, "commits/17")), Commit(root, 17))
    }
    checks.check("snapshots with an id are known by their version") {
      Seq("state/0/12/7_id.zip", "state/0/12/left-keys/7_id.zip").foreach { file =>
        equal[PathKind](PathKind.of(new Path(root, file)), Snapshot(7))
      }
    }
    checks.check("all other files are left alone") {
      Seq(
        "state/0/12/7.changelog",
        "state/0/12/7.zip",
        "state/0/12/7_id.zip.crc",
        "state/0/12/SSTs/7_id.zip",
        "state/0/_metadata/7_id.zip",
        "state/0/12/SSTs/1.sst",
        "state/0/_metadata/metadata",
        "commits/.17.tmp",
        "commits/metadata",
        "offsets/17",
        "metadata").foreach(file => equal[PathKind](PathKind.of(new Path(root, file)), Other))
      equal(PathKind.storeDirectory(new Path(root, "state/0")), None)
      equal(PathKind.storeDirectory(new Path(root, "state/0/_metadata/schema")), None)
      equal(PathKind.isTableFolder(new Path(root, "state/0/12/SSTs")), true)
      equal(PathKind.isTableFolder(new Path(root, "state/0/12/left/logs")), true)
      equal(PathKind.isTableFolder(new Path(root, "state/0/12/left")), false)
      equal(PathKind.isTableFolder(new Path(root, "state/0/_metadata/SSTs")), false)
    }
    checks.check("only the successor of the newest own file is known not to be there") {
      val numbered = new NumberedFiles
      def isNext(file: String) = numbered.isNext(new Path(root, file))
      equal(isNext("offsets/0"), false)
      Seq("offsets/6", "offsets/7", "offsets/metadata").foreach { file =>
        numbered.created(new Path(root, file))
      }
      equal(isNext("offsets/8"), true)
      Seq("offsets/7", "offsets/9", "commits/8", "offsets/8.compact").foreach { file =>
        equal(isNext(file), false)
      }
    }
    checks.check("a checkpoint may lie at the root of a bucket") {
      val bucket = new Path("file:///")
      equal(CheckpointRoot.of(bucket, new Configuration).commit(17), new Path(bucket, "commits/17"))
    }
    checks.check("two spellings of a directory are one checkpoint") {
      val conf = new Configuration
      equal(
        CheckpointRoot.of(new Path("/tmp/x/"), conf),
        CheckpointRoot.of(new Path("file:///tmp/x"), conf))
    }
  }
}
