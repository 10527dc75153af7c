"""The command ``perdure``."""
