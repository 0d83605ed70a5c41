"""`python -m gbpl` is `gbpl`."""

from gbpl.cli import main

main()
