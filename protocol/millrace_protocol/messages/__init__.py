"""The message bodies, one file per api or family of apis, each declared once."""
