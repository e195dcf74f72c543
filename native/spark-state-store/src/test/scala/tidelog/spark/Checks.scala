package tidelog.spark

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper

import tidelog.spark.format.{CorruptObjectException, FormatVersionException}

/** Takes checks by name: printed from a main method, or as tests in ScalaTest (Suites.scala). */
trait Checks {
  def check(name: String)(body: => Unit): Unit
}

/** Runs each check at once and prints a line of JSON: its name, and why it failed or null. */
final class PrintedChecks extends Checks {
  private val json = new ObjectMapper

  override def check(name: String)(body: => Unit): Unit = {
    val failure =
      try {
        body
        None
      } catch { case NonFatal(error) => Some(error.toString) }
    val line = json.createObjectNode().put("check", name).put("failure", failure.orNull)
    println(json.writeValueAsString(line))
  }
}

object Checks {
  def equal[T](found: T, expected: T): Unit =
    if (found != expected) throw new AssertionError(s"expected $expected, found $found")

  def equalBytes(found: Array[Byte], expected: Array[Byte]): Unit =
    equal(found.toVector, expected.toVector)

  /** Raises unless `body` fails as damage or a newer version, with a message that has `text`. */
  def refused(text: String)(body: => Any): Unit = {
    val failure =
      try {
        body
        throw new AssertionError("damage was not found")
      } catch {
        case error: CorruptObjectException => error.getMessage
        case error: FormatVersionException => error.getMessage
      }
    if (!failure.contains(text)) throw new AssertionError(s"'$text' is missing in: $failure")
  }

  /** The same bytes with one bit flipped, for every bit. */
  def flips(bytes: Array[Byte]): Iterator[Array[Byte]] =
    bytes.indices.iterator.flatMap { at =>
      (0 until 8).iterator.map { bit =>
        val damaged = bytes.clone()
        damaged(at) = (damaged(at) ^ (1 << bit)).toByte
        damaged
      }
    }

  /** All shorter beginnings of the bytes. */
  def truncations(bytes: Array[Byte]): Iterator[Array[Byte]] =
    bytes.indices.iterator.map(bytes.take)
}
