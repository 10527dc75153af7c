"""The pure cores of the agents package: they decide, the modules beside them do."""
