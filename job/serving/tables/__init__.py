"""Tables that are served: their jobs, places and rows, lookups in them, and the requests that these answer."""
