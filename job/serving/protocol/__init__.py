"""What clients and servers share: requests, errors and columns of answers, addresses with TLS."""
