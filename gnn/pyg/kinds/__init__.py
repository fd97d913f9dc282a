"""Export of modules that read kinds of vertices and relations: traced with dicts, and brought into levels of convs."""
