"""From the operations of a forward with kinds to levels of convs, with their layers, widths and weights."""
