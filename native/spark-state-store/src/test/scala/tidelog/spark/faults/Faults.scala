package tidelog.spark.faults

import java.io.{FileNotFoundException, IOException, InterruptedIOException}
import java.nio.file.{Files, NoSuchFileException, Path, Paths}
import java.util.{Properties, UUID}

import scala.jdk.CollectionConverters._
import scala.util.Using

/** One rule: operations `op` on paths that match `path` meet `action`. */
private final case class Rule(name: String, op: String, path: String, action: String) {
  def matches(operation: String, target: String): Boolean =
    op == operation && path.r.findFirstIn(target).isDefined
}

/** Which operations of a file system go wrong, as files in a directory say that tests write while
  * the JVMs run, so that all JVMs of an application obey one set of rules.
  *
  *   - `NAME.rule`: properties `op`, `path` (regular expression), `action`
  *   - `NAME.limited`: the rule applies once for each `NAME.token.*`, and no more
  *   - `NAME.fired.*`: written here, before the action, for each time the rule applied
  *   - `NAME.release`: ends all waits of the rule
  *
  * Invariant: each token is taken by one operation of one JVM.
  */
private final class Faults(control: Path) {

  /** Runs `work` as the first rule that applies says. */
  def around[T](op: String, target: String)(work: => T): T =
    applying(op, target) match {
      case None => work
      case Some(rule) => act(rule, target)(work)
    }

  /** How much of `bytes` a rule lets a write keep. */
  def kept(target: String, bytes: Array[Byte]): Array[Byte] =
    applying("content", target).fold(bytes)(_ => bytes.take(bytes.length / 2))

  private def act[T](rule: Rule, target: String)(work: => T): T = rule.action match {
    case "fail" => throw new IOException(s"injected failure of ${rule.op} $target")
    case "full" => throw new IOException(s"No space left on device: $target")
    case "missing" => throw new FileNotFoundException(s"injected: no $target")
    case "hold" =>
      await(rule)
      work
    case "hold-after" =>
      val result = work
      await(rule)
      result
    case "lose-answer" =>
      work
      throw new IOException(s"injected: the answer to ${rule.op} $target is lost")
    case other => throw new IllegalArgumentException(s"unknown action $other of ${rule.name}")
  }

  private def await(rule: Rule): Unit =
    try while (!exists(s"${rule.name}.release")) Thread.sleep(5)
    catch {
      case interrupted: InterruptedException =>
        throw new InterruptedIOException(interrupted.toString)
    }

  private def applying(op: String, target: String): Option[Rule] = {
    val found = rules().find(rule => rule.matches(op, target) && takesToken(rule))
    found.foreach { rule =>
      Files.writeString(control.resolve(s"${rule.name}.fired.${UUID.randomUUID}"), target)
    }
    found
  }

  private def takesToken(rule: Rule): Boolean =
    !exists(s"${rule.name}.limited") || names(s"${rule.name}.token.").exists { token =>
      Files.deleteIfExists(control.resolve(token))
    }

  private def rules(): Seq[Rule] =
    names("").filter(_.endsWith(".rule")).flatMap { file =>
      try Some(read(file))
      catch { case _: NoSuchFileException => None } // lifted since the listing
    }

  private def read(file: String): Rule = {
    val properties = new Properties
    Using.resource(Files.newBufferedReader(control.resolve(file)))(properties.load(_))
    def value(key: String) = properties.getProperty(key)
    Rule(file.stripSuffix(".rule"), value("op"), value("path"), value("action"))
  }

  private def names(prefix: String): Seq[String] =
    Using.resource(Files.list(control)) { files =>
      files.iterator.asScala.map(_.getFileName.toString).filter(_.startsWith(prefix)).toSeq.sorted
    }

  private def exists(name: String): Boolean = Files.exists(control.resolve(name))
}

private object Faults {
  val ControlKey = "fs.faulty.control"

  def of(control: String): Faults = {
    require(control != null, s"$ControlKey must name the directory that holds the rules")
    new Faults(Paths.get(control))
  }
}
