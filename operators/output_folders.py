"""The folders below `--out` that operators write; all that lies there is named in `job.folder.layout`."""

EMBEDDINGS = "embeddings"  # the change log: rows of vertices by epoch
EPOCHS = "epochs"  # with which input each epoch ends
STATUS = "status"  # what operators tell about themselves while they run
TABLES = "tables"  # what readers in other processes map: the tails, and the table that a server makes of them
TAILS = "tables/tail"  # the newest epochs, part by part
