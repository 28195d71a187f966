"""Limits of the server, checked before anything is sent. Units are last in the names."""

ARGS_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
ERROR_BYTES_MAX = 16 << 10
LOG_LINE_BYTES_MAX = 16 << 10
PROGRESS_MESSAGE_BYTES_MAX = 1 << 10
BATCH_JOBS_MAX = 10_000
BATCH_BYTES_MAX = 32 << 20
NAME_BYTES_MAX = 255
JSON_DEPTH_MAX = 64
POLL_JOBS_MAX = 10_000
REPORT_EVENTS_MAX = 20_000
CONCURRENCY_MAX = 100_000
QUEUES_MAX = 1_000
SERVERS_MAX = 100

# A response is never larger than one poll (8 MiB of arguments) or one page of jobs, with room for escapes.
RESPONSE_BYTES_MAX = 64 << 20
HEADERS_BYTES_MAX = 64 << 10


def cut(text: str, bytes_max: int) -> str:
    """Returns at most ``bytes_max`` bytes of a text, never half a character, with a mark if it was cut."""
    if len(text) * 4 <= bytes_max and text.isascii():
        return text
    # A lone surrogate cannot be sent in UTF-8.
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    mark = "… (cut)"
    return data[: bytes_max - len(mark.encode())].decode("utf-8", "ignore") + mark
