// A static server for this machine only. Files come from the given folders and from nowhere else.

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, sep } from "node:path";
import { Problem } from "./lib.mjs";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

/**
 * Serves `folders` (the first that has a file wins) and gives the address, without a final "/". What is
 * posted to a path of `hears` is handed to its function, before the one who posted is answered. `headers`
 * go with every answer.
 */
export async function serve(folders, { port = 0, pages = {}, hears = {}, headers = {} } = {}) {
  const server = createServer((request, response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const path = pathOf(request.url ?? "/");
    if (request.method === "POST" && hears[path]) return hear(request, response, hears[path]);
    if (request.method !== "GET" && request.method !== "HEAD") return end(response, 405);
    if (path === undefined) return end(response, 400);
    const page = pages[path];
    if (page !== undefined) {
      response.writeHead(200, { "content-type": TYPES[".html"], "cache-control": "no-store" });
      return response.end(page);
    }
    const file = find(folders, path);
    if (file === undefined) return end(response, 404);
    response.writeHead(200, {
      "content-type": TYPES[extname(file.path)] ?? "application/octet-stream",
      "content-length": file.size,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    if (request.method === "HEAD") return response.end();
    createReadStream(file.path)
      .on("error", () => response.destroy())
      .pipe(response);
  });
  await new Promise((resolve, reject) => {
    server.once("error", (error) =>
      reject(
        error.code === "EADDRINUSE"
          ? new Problem(`port ${port} is taken. Choose another with --port, or 0 for any.`)
          : error,
      ),
    );
    server.listen(port, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}

function hear(request, response, listener) {
  let said = "";
  request.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  request.on("end", () => {
    listener(said);
    end(response, 200);
  });
}

function end(response, status) {
  response.writeHead(status, { "content-type": "text/plain" });
  response.end(`${status}\n`);
}

function pathOf(url) {
  try {
    const path = decodeURIComponent(new URL(url, "http://localhost").pathname);
    return path.includes("\0") ? undefined : path;
  } catch {
    return undefined;
  }
}

function find(folders, path) {
  for (const folder of folders) {
    const full = join(folder, path.endsWith("/") ? `${path}index.html` : path);
    if (!full.startsWith(folder + sep)) continue;
    try {
      const stat = statSync(full);
      if (stat.isFile()) return { path: full, size: stat.size };
    } catch {
      // Not in this folder; the next may have it.
    }
  }
  return undefined;
}
