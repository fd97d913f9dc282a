"""What bounds the memory that requests and answers of a server take: a budget, sizes before they are made, parts."""
