"""Tools for whoever develops Chrono; nothing here runs in production."""
