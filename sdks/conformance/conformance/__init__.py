"""The conformance suite for clients of Convoke. See ../README.md."""
