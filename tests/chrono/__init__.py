"""Settings, commands and logs: what ties the rooms together."""
