"""Tests of Chrono, laid out like the rooms they look into."""
