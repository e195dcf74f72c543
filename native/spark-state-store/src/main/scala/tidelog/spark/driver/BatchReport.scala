package tidelog.spark.driver

import com.fasterxml.jackson.databind.ObjectMapper

import tidelog.spark.layout.CheckpointRoot
import tidelog.spark.snapshot.SnapshotTurn

/** What one committed batch of a query was made of.
  *
  * @param query Spark's id of the query, if a streaming query wrote the commit
  * @param indexBytes length of the index line in its commit
  * @param kept house-keeping since the batch before
  */
final case class BatchReport(
    query: Option[String],
    root: CheckpointRoot,
    gathered: Gathered,
    indexBytes: Long,
    kept: HouseKept) {
  def batch: Long = gathered.index.last

  /** One line of JSON; docs/reference/spark-plugin.md has its fields. */
  def json: String = {
    val (index, uploads) = (gathered.index, gathered.segments)
    val times = uploads.map(upload => math.round(upload.elapsedNs / 1e3) / 1e3).sorted
    def turns(kind: SnapshotTurn) = gathered.snapshots.count(_.turn == kind)
    val node = BatchReport.mapper.createObjectNode()
    node.put("query", query.orNull)
    node.put("checkpoint", root.uri)
    node.put("batch", batch)
    node.put("changelogs", index.entries.length)
    node.put("changelog_bytes", index.entries.map(_.bytes).sum)
    node.put("segments", index.apart.size)
    node.put("segment_bytes", index.apart.values.sum)
    node.put("commit_bytes", gathered.inCommit.fold(0L)(_.length.toLong))
    node.put("blocks", index.entries.map(_.pieces.length).sum)
    node.put("index_bytes", indexBytes)
    node.put("barrier_wait_ms", gathered.waitedMs)
    // Double.box: a batch without uploads has no times.
    node.put("upload_ms_p50", times.lift((times.length - 1) / 2).map(Double.box).orNull)
    node.put("upload_ms_max", times.lastOption.map(Double.box).orNull)
    node.put("upload_attempts", uploads.map(_.attempts).sum)
    node.put("snapshots", turns(SnapshotTurn.Taken))
    node.put("snapshots_put_off", turns(SnapshotTurn.PutOff))
    val lags = node.putObject("snapshot_lags")
    gathered.lags.sortBy(-_._2).take(BatchReport.LagsReported).foreach { case (store, lag) =>
      lags.put(store, lag)
    }
    node.put("roll_ups", kept.rollUps)
    node.put("segments_deleted", kept.deleted)
    node.put("house_keeping_failures", kept.failed)
    node.put("live_segments", kept.liveSegments)
    node.put("live_bytes", kept.liveBytes)
    BatchReport.mapper.writeValueAsString(node)
  }
}

object BatchReport {

  /** As many as Spark's own progress has of a metric by store. */
  private val LagsReported = 5
  private val mapper = new ObjectMapper
}

/** The newest reports of this driver as JSON, by query and batch; thread-safe.
  *
  * Invariant: no index of a batch is kept, which has an entry for each state store.
  */
final class BatchReports {
  private val newest = new java.util.LinkedHashMap[(String, Long), String] {
    override def removeEldestEntry(eldest: java.util.Map.Entry[(String, Long), String]) =
      size > BatchReports.Kept
  }

  def add(report: BatchReport): Unit = synchronized {
    report.query.foreach { query =>
      // A batch that has run again is the newest one.
      newest.remove((query, report.batch))
      newest.put((query, report.batch), report.json)
    }
  }

  def find(query: String, batch: Long): Option[String] = synchronized {
    Option(newest.get((query, batch)))
  }
}

private object BatchReports {

  /** A listener is called within seconds of a batch. */
  private val Kept = 1000
}
