"""The database of one durable object: the seam, its DuckDB implementation, and what user code sees of it."""
