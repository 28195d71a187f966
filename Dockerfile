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
EXPOSE 3000
# Stopped by SIGTERM: it hands its runs over first, which takes up to a minute (docker stop --time 90).
STOPSIGNAL SIGTERM
ENTRYPOINT ["convoke"]
CMD ["serve"]
