# The Worker for workerd. With wrangler the same is said by `new_sqlite_classes` and a binding.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .drop),
    (name = "disk", disk = (path = "disk", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);

const drop :Workerd.Worker = (
  modules = [
    (name = "worker.js", esModule = embed "worker.js"),
    (name = "varve.wasm", wasm = embed "varve.wasm"),
  ],
  compatibilityDate = "2025-01-01",
  durableObjectNamespaces = [(className = "Drop", uniqueKey = "drop", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "DROPS", durableObjectNamespace = "Drop")],
);
