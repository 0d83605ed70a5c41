"""`python -m gbpl.cli`."""

from gbpl.cli import main

main()
