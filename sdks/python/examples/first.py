"""The first job of the guide, which saves it as shop.py."""

import convoke

app = convoke.App()  # http://127.0.0.1:3000, or CONVOKE_SERVER


@app.job("email.send", queue="mail", max_retries=5, timeout="30s")
def send(to: str, subject: str = "Your order") -> int:
    return 250
