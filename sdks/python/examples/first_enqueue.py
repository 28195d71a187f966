"""With shop.py as in the guide, or the longer one beside this file."""

from shop import send

handle = send.enqueue(to="ada@example.org")
print(handle.result(timeout="30s"))
