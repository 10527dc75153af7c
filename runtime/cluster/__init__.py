"""All code that imports Ray."""
