"""Conversations: messages, the tree that they form, and its store."""
