package tidelog.spark.core

import java.io.IOException

import scala.util.Try

import org.apache.hadoop.fs.{FileStatus, Path}

import tidelog.spark.Checks
import tidelog.spark.Checks.equal
import tidelog.spark.snapshot.CleanUpMemory

final class CleanUpChecks(checks: Checks) {
  private val directory = new Path("s3a://bucket/checkpoint/state/0/3")

  def run(): Unit = {
    checks.check("a clean-up lists the directory once an hour") {
      val store = new Listed("10_a.zip")
      equal(store.list(), Set("10_a.zip"))
      store.files = Set("10_a.zip", "20_of_another_attempt.zip")
      store.after(minutes = 59)
      equal((store.list(), store.listings), (Set("10_a.zip"), 1))
      store.after(minutes = 1)
      equal((store.list(), store.listings), (store.files, 2))
    }
    checks.check("a clean-up knows what is stored and deleted meanwhile") {
      val store = new Listed("10_a.zip", "20_b.zip")
      store.list()
      store.memory.stored(new Path(directory, "30_c.zip"))
      store.memory.deleted(new Path(directory, "10_a.zip"))
      store.memory.deleted(new Path(directory, "10_a.zip.crc"))
      store.memory.stored(new Path("s3a://bucket/checkpoint/state/0/4/40_d.zip"))
      equal((store.list(), store.listings), (Set("20_b.zip", "30_c.zip"), 1))
    }
    checks.check("a clean-up lists again after the store was loaded") {
      val store = new Listed("10_a.zip")
      store.list()
      store.files = Set("10_a.zip", "20_of_another_executor.zip")
      store.memory.forget()
      equal((store.list(), store.listings), (store.files, 2))
    }
    checks.check("a directory is known from its listing on, while it has files, for an hour") {
      val (store, empty) = (new Listed("10_a.zip"), new Listed())
      equal(store.memory.knows(directory), false)
      store.list()
      empty.list()
      equal((store.memory.knows(directory), empty.memory.knows(directory)), (true, false))
      store.after(minutes = 60)
      equal(store.memory.knows(directory), false)
    }
    checks.check("a listing that fails is made again") {
      val store = new Listed()
      val failed = Try(store.memory.list(directory)(throw new IOException("slow down")))
      equal(failed.isFailure, true)
      equal(store.list(), Set.empty[String])
      equal(store.listings, 1)
    }
    checks.check("a folder of tables is searched once an hour") {
      val (store, tables, logs) = (new Listed(), new Path(directory, "SSTs"), new Path(directory, "logs"))
      equal(Seq(tables, logs, tables).map(store.memory.searched), Seq(false, false, true))
      store.after(minutes = 60)
      equal(store.memory.searched(tables), false)
    }
  }

  private final class Listed(names: String*) {
    var files: Set[String] = names.toSet
    var listings = 0
    private var now = 0L
    val memory = new CleanUpMemory(() => now)

    def after(minutes: Int): Unit = now += minutes * 60_000L

    def list(): Set[String] = memory
      .list(directory) {
        listings += 1
        files.toArray.map(name => new FileStatus(1, false, 1, 1, 0, new Path(directory, name)))
      }
      .map(_.getPath.getName)
      .toSet
  }
}
