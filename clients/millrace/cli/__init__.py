"""The command line `millrace`: one module per command, imported when the command runs."""
