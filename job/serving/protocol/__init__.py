"""Protocol shared by clients and servers: requests, errors and columns of answers, addresses with TLS."""
