"""A job that exists if and only if the order does. Needs a server whose store is this PostgreSQL, and psycopg."""

import os

import psycopg

import convoke
from shop import send

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute("create table if not exists orders (id int)")
    connection.execute("insert into orders values (17)")
    job_id = convoke.enqueue_in(connection, send.request(to="ada@example.org"))
print(job_id)
