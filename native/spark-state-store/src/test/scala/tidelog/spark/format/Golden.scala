package tidelog.spark.format

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

import tidelog.spark.index.CommitFile

/** What the golden files of Spark hold; `tests/golden/golden_spark.py` says the same. */
object Golden {
  val Author: SegmentAuthor = SegmentAuthor(1700000000000L, "0a1b2c3d-1", 7)
  val SegmentName: String = ObjectNames.segment("0a1b2c3d", "1", 7)
  val OtherSegment: String = ObjectNames.segment("0a1b2c3d", "driver", 123456789)

  val Large: ChangelogName =
    ChangelogName(0, 3, "default", 12, "5d1c8f3e-0b1a-4c55-9c39-5b1d2e6f7a80")
  val Joined: ChangelogName =
    ChangelogName(1, 199, "left-keyToNumValues", 12, "e0b0a6a2-77b5-4d0c-8f5e-3f2f6f1f9c11")
  val Empty: ChangelogName = ChangelogName(4294967296L, 0, "zählwerk", 5000000000L, "ü_1")

  private val EveryByte = Array.tabulate(256)(_.toByte)

  /** Name, piece, pieces and content; the pieces of one changelog need not lie together. */
  val Pieces: Vector[(ChangelogName, Int, Int, Array[Byte])] = Vector(
    (Large, 0, 0, EveryByte),
    (Joined, 0, 1, "LZ4Block".getBytes(UTF_8)),
    (Large, 1, 0, EveryByte.reverse),
    (Empty, 0, 1, Array.emptyByteArray),
    (Large, 2, 3, Array[Byte](-1)))

  private val builder = new SegmentBuilder(Author, SegmentName)
  val Places: Vector[Piece] = Pieces.map((builder.add _).tupled)
  val Segment: Array[Byte] = builder.result()

  private def later(version: Long): IndexEntry =
    IndexEntry(
      Large.copy(version = version, id = s"id-$version"),
      300,
      Vector(Piece(OtherSegment, 44 + 400 * (version - 13), 390)))

  val Entries: Vector[IndexEntry] = Vector(
    IndexEntry(Joined, 8, Vector(Places(1))),
    IndexEntry(Large, 513, Vector(Places(0), Places(2), Places(4))))

  val Commit: IndexDocument =
    IndexDocument(11, 11, Map(SegmentName -> Segment.length.toLong), Entries)

  private val inCommit = new SegmentBuilder(Author, ObjectNames.inCommit(11))
  private val placed = inCommit.add(Joined, 0, 1, "LZ4Block".getBytes(UTF_8))
  val SegmentInCommit: Array[Byte] = inCommit.result()

  /** The index of a commit with a segment within it. */
  val CommitWithSegment: IndexDocument = IndexDocument(
    11,
    11,
    Map(ObjectNames.inCommit(11) -> SegmentInCommit.length.toLong),
    Vector(IndexEntry(Joined, 8, Vector(placed))))

  val RollUp: IndexDocument = IndexDocument(
    10,
    19,
    Map(SegmentName -> Segment.length.toLong, OtherSegment -> 5000000000L),
    Vector(20L, 19L, 13L).map(later) ++ Entries)

  /** The two lines that Spark writes into `commits/11`. */
  val SparkLines: String = "v2\n" +
    s"""{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["${Large.id}"]],""" +
    s""""1":[["${Joined.id}"]]}}"""

  val Files: Map[String, Array[Byte]] = Map(
    "spark_segment_v1.bin" -> Segment,
    "spark_commit_v1.txt" -> CommitFile.withIndex(SparkLines.getBytes(UTF_8), Commit),
    "spark_commit_segment_v1.txt" -> CommitFile.withSegment(
      CommitFile.withIndex(SparkLines.getBytes(UTF_8), CommitWithSegment), SegmentInCommit),
    "spark_roll_up_v1.json" -> IndexDocument.write(RollUp).getBytes(UTF_8))
}

/** Writes the golden files that are not there yet, and touches no other. */
object WriteGolden {
  def main(arguments: Array[String]): Unit =
    Golden.Files.foreach { case (name, bytes) =>
      val path = Path.of(arguments(0), name)
      if (!Files.exists(path)) Files.write(path, bytes)
    }
}
