"""The on-disk format of the Spark plug-in: docs/internals/format.md, "Spark checkpoints".

`names` names objects, `block` and `segment` hold the bytes, `index` says where they lie, and
`changelog` decodes what Spark wrote. The plug-in's Scala package of the same name is its twin:
both reproduce the golden files byte for byte.
"""
