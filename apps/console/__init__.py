"""The door for people: Django's admin over jobs, runs, keys and what was changed."""
