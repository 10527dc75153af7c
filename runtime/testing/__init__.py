"""Virtual time, and many hosts in one process with injected faults."""
