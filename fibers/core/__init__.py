"""The pure core of fibers: what a scan decides."""
