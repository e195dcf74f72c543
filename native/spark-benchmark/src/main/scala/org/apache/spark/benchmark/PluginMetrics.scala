package org.apache.spark.benchmark

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkEnv

/** What a plug-in has registered in Spark's metrics system; here because that is private to Spark.
  *
  * A line per metric: `name value`. Of timers the median in milliseconds, of histograms the median.
  */
object PluginMetrics {
  def read(plugin: String): String = {
    val registries = SparkEnv.get.metricsSystem.getSourcesByName(s"plugin.$plugin")
      .map(_.metricRegistry)
    val counters = registries.flatMap(_.getCounters.asScala.map { case (name, counter) =>
      s"$name ${counter.getCount}"
    })
    val timers = registries.flatMap(_.getTimers.asScala.map { case (name, timer) =>
      s"${name}_ms ${timer.getSnapshot.getMedian / 1e6}"
    })
    val histograms = registries.flatMap(_.getHistograms.asScala.map { case (name, histogram) =>
      s"$name ${histogram.getSnapshot.getMedian}"
    })
    (counters ++ timers ++ histograms).sorted.mkString("\n")
  }
}
