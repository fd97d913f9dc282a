"""What a Storage keeps of the messages of a layer: a room for each kind of aggregate."""
