# Two Workers for workerd: one with the Durable Objects, one that only reads. With wrangler the same is said by
# `new_sqlite_classes`, `durable_objects` and `r2_buckets`; the services "bucket" and "folder" are R2 there.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "reader", worker = .reader),
    (name = "bucket", worker = .bucket),
    (name = "disk", disk = (path = "disk", writable = true)),
    (name = "folder", disk = (path = "folder", writable = true)),
  ],
  sockets = [
    (name = "main", address = "127.0.0.1:0", http = (), service = "main"),
    (name = "reader", address = "127.0.0.1:0", http = (), service = "reader"),
  ],
);

const main :Workerd.Worker = (
  modules = [
    (name = "worker.js", esModule = embed "worker.js"),
    (name = "varve.wasm", wasm = embed "varve.wasm"),
  ],
  compatibilityDate = "2025-01-01",
  durableObjectNamespaces = [(className = "Shard", uniqueKey = "shard", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [
    (name = "SHARDS", durableObjectNamespace = "Shard"),
    (name = "BUCKET", r2Bucket = "bucket"),
  ],
);

const reader :Workerd.Worker = (
  modules = [
    (name = "reader.js", esModule = embed "reader.js"),
    (name = "varve.wasm", wasm = embed "varve.wasm"),
  ],
  compatibilityDate = "2025-01-01",
  bindings = [(name = "BUCKET", r2Bucket = "bucket")],
);

const bucket :Workerd.Worker = (
  modules = [(name = "bucket.js", esModule = embed "bucket.js")],
  compatibilityDate = "2025-01-01",
  bindings = [(name = "FOLDER", service = "folder")],
);
