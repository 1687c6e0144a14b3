FROM node:26-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# npm settings and certificates can be passed as build secrets. They are not stored in the image.
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc --mount=type=secret,id=cafile npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY scripts/copy-pages.js scripts/
COPY schemas schemas
COPY plugins plugins
COPY src src
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc --mount=type=secret,id=cafile npm run build && npm prune --omit=dev
# This version of Node has SQLite, so the 17 MB of the driver for Node 20 are not needed.
RUN rm -rf node_modules/libsql node_modules/@libsql node_modules/@neon-rs
# Node needs this library, which only the Node image has.
RUN cp /usr/lib/*-linux-gnu/libatomic.so.1 /usr/local/lib/

# The base of the official Node image, with only the Node binary and its library.
FROM debian:bookworm-slim
COPY --from=build /usr/local/LICENSE /usr/local/
COPY --from=build /usr/local/bin/node /usr/local/bin/
COPY --from=build /usr/local/lib/libatomic.so.1 /usr/local/lib/
RUN ldconfig && useradd --uid 1000 node && install --directory --owner=node --group=node /data
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 METRICS_HOST=0.0.0.0
WORKDIR /app
COPY package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
# A number, so that an orchestrator can check that it is not root.
USER 1000
EXPOSE 3000
# The liveness probe: a new container would not help if only the database is unavailable.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/livez`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/src/server.js"]
