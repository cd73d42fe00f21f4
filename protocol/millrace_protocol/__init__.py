"""The wire protocol and record batch format of millrace."""
