"""The rooms of Chrono, one per stage of the pipeline."""
