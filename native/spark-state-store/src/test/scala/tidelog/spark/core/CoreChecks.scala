package tidelog.spark.core

import tidelog.spark.{Checks, PrintedChecks}

/** Checks of the plug-in's decisions and of the log on a local directory, without a session. */
object CoreChecks {
  def main(arguments: Array[String]): Unit = run(new PrintedChecks)

  def run(checks: Checks): Unit = {
    new BarrierChecks(checks).run()
    new PackerChecks(checks).run()
    new DriverChecks(checks).run()
    new ChangelogStreamChecks(checks).run()
    new LiveIndexChecks(checks).run()
    new PhaseChecks(checks).run()
    new CleanUpChecks(checks).run()
    new PathKindChecks(checks).run()
    new SegmentCacheChecks(checks).run()
    new UploadChecks(checks).run()
    new MetricsChecks(checks).run()
    new LogChecks(checks).run()
  }
}
