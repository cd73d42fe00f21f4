"""What the manual takes from the code: its tables of settings and of commands.

`python -m mkdocs build --strict`, from the root of the repository, makes a site of the Markdown
files. `mkdocs.yml` has its navigation, and `site` what is done to the pages.
"""
