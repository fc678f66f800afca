"""Reading a partition: from an address to places, from places to records and bytes.

    address         the grammar of names: selectors, ranges, views
    waits           why a read ends early
    places          where a reader is in the files
    readable        ReadableLog: a log as readers need it, written here or elsewhere
    aborted         which records belong to aborted transactions
    lookup          from an offset or a moment to positions
    after_damage    what is after a corrupt batch
    marked          large batches into which a reader has looked
    offsetcursor    where a reader is that goes by offset
    records         a cursor over decoded records
    reader          a cursor over one rendering: position in, bytes out

``_cursor.h`` is the cursor of the native thread.
"""
