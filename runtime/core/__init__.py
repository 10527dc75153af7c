"""The pure cores of the runtime: gates, lifecycle, alarms."""
