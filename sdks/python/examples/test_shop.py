"""Tests of shop.py: ``pytest test_shop.py``. The second needs the program ``convoke``."""

from collections.abc import Callable

import convoke
from convoke.testing import Server
from shop import app, send


def test_a_mail_is_sent(convoke_inline: Callable[[convoke.App], None]) -> None:
    convoke_inline(app)  # no server: the handler runs in this process
    assert send.enqueue(to="ada@example.org").result() == 250


def test_a_mail_is_sent_a_day_later(convoke_server: Server, convoke_worker: Callable[..., convoke.Worker]) -> None:
    convoke_worker(app)
    later = send.options(delay="24h").enqueue(to="ada@example.org")
    convoke_server.advance("23h")
    assert later.job().status == "scheduled"
    convoke_server.advance("1h")  # every schedule, retry, timeout and lease that is due fires, in order
    assert later.result() == 250
