"""`python -m millrace`: the command line, for where the script is not on the PATH."""

from millrace.cli.main import main

if __name__ == "__main__":
    main()
