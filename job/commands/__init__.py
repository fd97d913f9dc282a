"""The commands of `freshet`, a module each."""
