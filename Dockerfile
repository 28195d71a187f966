# docker build -t convoke .
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package convoke-server

FROM debian:bookworm-slim
RUN useradd --system --create-home --home-dir /var/lib/convoke convoke
COPY --from=build /src/target/release/convoke /usr/local/bin/convoke
USER convoke
WORKDIR /var/lib/convoke
# The API on 3000: probes and metrics are open to all, the rest to the container itself until CONVOKE_HTTP__TOKENS is set.
# The shard coordinator on 5555.
ENV PORT=3000 CONVOKE_HTTP__PUBLIC=health,metrics SHARD_COORDINATOR_BIND_HOST=tcp://0.0.0.0
EXPOSE 3000 5555
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/$PORT && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q '^HTTP/1.. 200' <&3"]
# Stopped by SIGTERM: it hands its runs over first, which takes up to a minute (docker stop --time 90).
STOPSIGNAL SIGTERM
ENTRYPOINT ["convoke"]
CMD ["serve"]
