"""What an agent can do for a model: tools, and the workspace of files behind some of them."""
