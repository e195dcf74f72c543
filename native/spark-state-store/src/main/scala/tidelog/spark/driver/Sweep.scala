package tidelog.spark.driver

import tidelog.spark.format.FooterEntry

/** Which segments of earlier runs are garbage; pure.
  *
  * Invariant: a segment goes only if, for every piece in it, it is known that no commit names the
  * piece's changelog. A batch whose index could not be read keeps its segments. This process has
  * committed a batch itself when it asks: an older driver can commit nothing any more, because the
  * next commit it would write exists.
  */
object Sweep {
  def isGarbage(footer: Seq[FooterEntry], index: LiveIndex, known: Long => Boolean): Boolean =
    footer.forall { entry =>
      val batch = entry.name.batch
      val named = index.batches.get(batch).exists(_.contains(entry.name))
      !named && (batch > index.committed || known(batch))
    }
}
