package tidelog.spark.format

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkConf
import org.apache.spark.io._
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._

/** Has the installed Spark write changelogs of every version with every codec into a folder, for
  * the decoder in Python; `test_changelog_of_spark.py` knows what is in them.
  */
object SparkChangelogs {
  private val Records = 400
  private val Lineage = Array(LineageItem(7, "seven"), LineageItem(8, "eight"))

  def main(arguments: Array[String]): Unit = {
    val conf = new SparkConf(loadDefaults = false)
    val codecs = Seq(
      "lz4" -> new LZ4CompressionCodec(conf),
      "zstd" -> new ZStdCompressionCodec(conf),
      "snappy" -> new SnappyCompressionCodec(conf),
      "lzf" -> new LZFCompressionCodec(conf))
    for ((name, codec) <- codecs; version <- 1 to 4) {
      write(new Path(arguments(0), s"$name-v$version.changelog"), codec, version, Records)
      write(new Path(arguments(0), s"$name-v$version-empty.changelog"), codec, version, 0)
    }
  }

  private def write(path: Path, codec: CompressionCodec, version: Int, records: Int): Unit = {
    val files = CheckpointFileManager.create(path.getParent, new Configuration)
    val writer = version match {
      case 1 => new StateStoreChangelogWriterV1(files, path, codec)
      case 2 => new StateStoreChangelogWriterV2(files, path, codec)
      case 3 => new StateStoreChangelogWriterV3(files, path, codec, Lineage)
      case 4 => new StateStoreChangelogWriterV4(files, path, codec, Lineage)
    }
    (0 until records).foreach(record(writer, _, typed = version % 2 == 0))
    writer.commit()
  }

  private def record(writer: StateStoreChangelogWriter, number: Int, typed: Boolean): Unit = {
    val key = s"key-$number".getBytes(UTF_8)
    number % 4 match {
      case 1 => writer.delete(key)
      case 2 if typed => writer.merge(key, value(number))
      case _ => writer.put(key, value(number))
    }
  }

  /** Half of the values compress well, the others not at all. */
  private def value(number: Int): Array[Byte] =
    if (number % 8 < 4) Array.fill(number * 10)(number.toByte)
    else {
      var state = number
      Array.fill(number * 10) {
        state = state * 1103515245 + 12345
        (state >>> 16).toByte
      }
    }
}
