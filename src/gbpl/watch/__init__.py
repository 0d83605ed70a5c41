"""A deployed policy while data arrive: bounds on its value and gain that hold at every row, and what they advise."""
