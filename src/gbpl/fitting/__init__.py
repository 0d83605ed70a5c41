"""Members, and the one function that fits a stack of them."""
