"""Commands of `freshet` as functions: each has the options of its command as keywords, and a process of its own."""
