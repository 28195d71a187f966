"""Ids that the client makes, so that a request whose response was lost can be repeated."""

import os
import time


def job_id() -> str:
    """Returns a UUIDv7: ids of one client sort by time, which keeps the server's index dense."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def worker_id() -> str:
    return "py-" + job_id().replace("-", "")
