"""The index files beside a segment: their entries (pure) and the files that hold them.

index        the entries of the offset index and the time index
textindex    log position <-> running lengths of the three renderings
txnindex     the aborted transactions whose markers are in a segment
paged        entries that stay in their file and are read a page at a time
indexfile    one file: appended to while its segment is active, read once it is sealed
"""
