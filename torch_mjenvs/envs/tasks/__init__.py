"""The tasks: what a task must say (`base`), one file a task, and all of them by name (`registry`)."""
