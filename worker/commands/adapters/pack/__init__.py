"""The adapters that come with the project: one file for each family of programs."""
