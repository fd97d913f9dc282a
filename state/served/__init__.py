"""The versioned table: one process writes it, any number read it from shared memory, each at one epoch, without a lock.

Every id has a row in place; what a row replaces goes to a ring of undo entries, chained from the row. A reader takes
the newest complete epoch E, and for each id the newest version whose epoch is not past E. Where the ring has moved on
meanwhile, it begins again with a newer E. `layout` has the bytes, `read_kernels` and `write_kernels` the protocol.
"""
