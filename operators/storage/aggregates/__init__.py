"""What a Storage keeps of the messages that it looks at one by one: folds and their kernels, a file for each kind."""
