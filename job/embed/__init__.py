"""`freshet embed`: a snapshot's embeddings out of core, from its options to the folder that comes out."""
