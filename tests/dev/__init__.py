"""The developer's tools: the server in a folder, the set-up, `make run`."""
