"""What a worker of an own Ray imports before it is given an object to be."""
