"""The processes of a server: one follows the job and writes the table, all of them answer from it."""
