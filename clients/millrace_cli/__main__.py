"""`python -m millrace_cli`: the command line without the script `millrace`."""

from millrace_cli.main import main

if __name__ == "__main__":
    main()
