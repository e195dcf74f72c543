package tidelog.spark.driver

import tidelog.spark.format.FooterEntry

/** Which segments of earlier runs are garbage; pure.
  *
  * Invariant: a segment goes only if, for every piece in it, it is known that no commit names the
  * piece's changelog, or where else the index has it. A batch whose index could not be read keeps
  * its segments. This process has committed a batch itself when it asks: an older driver can commit
  * nothing any more, because the next commit it would write exists.
  */
object Sweep {
  def isGarbage(
      segment: String,
      footer: Seq[FooterEntry],
      index: LiveIndex,
      known: Long => Boolean): Boolean =
    footer.forall { entry =>
      val batch = entry.name.batch
      val indexed = index.batches.get(batch).flatMap(_.get(entry.name))
      val named = indexed.exists(_.pieces.exists(_.segment == segment))
      !named && (batch > index.committed || known(batch))
    }
}
