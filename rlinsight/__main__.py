"""`python -m rlinsight` is the command line."""

from rlinsight.cli import main

if __name__ == "__main__":
    main()
