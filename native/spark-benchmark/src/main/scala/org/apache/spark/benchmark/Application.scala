package org.apache.spark.benchmark

import org.apache.hadoop.fs.FileSystem
import org.apache.spark.sql.execution.streaming.state.StateStore

/** What lies between two queries of one JVM; here because some of it is private to Spark. */
object Application {
  /** Closes all state stores, and forgets all file systems with their settings. */
  def forget(): Unit = {
    StateStore.stop()
    FileSystem.closeAll()
  }
}
