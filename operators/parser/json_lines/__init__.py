"""Lines of JSON, one event each: read by columns, many at once, and odd ones one by one."""
