"""Enqueues jobs of the shop, while a worker runs them."""

import convoke
from shop import Order, app, charge, pack, send

sent = send.enqueue(to="ada@example.org")  # durable when this returns
print(sent.result(timeout="30s"))  # 250: typed, waits through all attempts

later = send.options(delay="5m", unique_key="welcome-ada").enqueue("ada@example.org", subject="Welcome")
print(later.job().status)  # scheduled
later.cancel("not needed")

packed = pack.enqueue(Order(17, ["pen", "ink"]))
charged = app.enqueue_batch([charge.request(id, cents=990) for id in (17, 18)])  # all or none
print(packed.result("30s"), [each.result("30s") for each in charged])

try:
    charge.enqueue(19, cents=0).result("30s")
except convoke.NotCompleted as error:
    print(error.job.status, error.job.error)  # failed order 19 has nothing to charge

send.schedule("weekly", convoke.Cron("0 9 * * MON", tz="Europe/Berlin"), to="ada@example.org")
app.client.remove_schedule("weekly")
