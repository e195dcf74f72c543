package tidelog.spark

import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

import tidelog.spark.core.CoreChecks
import tidelog.spark.format.FormatChecks

/** The checks as tests of ScalaTest; Python's tests run them without it, by their main methods. */
abstract class ChecksSuite extends AnyFunSuite with Checks {
  override def check(name: String)(body: => Unit): Unit = test(name)(body)
}

final class CoreSuite extends ChecksSuite {
  CoreChecks.run(this)
}

final class FormatSuite extends ChecksSuite {
  FormatChecks.run(this, goldenFolder)

  /** `tests/golden` of the repository, which the working directory is somewhere below. */
  private def goldenFolder: Path =
    Iterator
      .iterate(Path.of("").toAbsolutePath)(_.getParent)
      .takeWhile(_ != null)
      .map(_.resolve("tests/golden"))
      .find(Files.isDirectory(_))
      .getOrElse(sys.error("no tests/golden above the working directory: start in the repository"))
}
