"""The tail: what a sink part publishes the moment that it has it, for readers in other processes."""
