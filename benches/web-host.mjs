// A web host of the benchmarks: files that are compressed once, each host with an origin of its own.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";

const TYPES = { ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html" };

/** The files as a web host serves them: compressed once, and cached. */
export class Files {
  #folder;
  #known = new Map();

  constructor(folder) {
    this.#folder = folder;
  }

  read(path) {
    let body = this.#known.get(path);
    if (body === undefined && path.endsWith(".html")) {
      const script = path.replace(".html", ".js");
      body = Buffer.from(
        `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="${script}"></script>`,
      );
    }
    body ??= brotliCompressSync(readFileSync(join(this.#folder, path)), {
      // A usual setting of hosts: the highest quality takes a minute for PGlite's files.
      params: { [constants.BROTLI_PARAM_QUALITY]: 9 },
    });
    this.#known.set(path, body);
    return body;
  }
}

/** A server with a new origin that counts the downloaded bytes. */
export class Host {
  bytes = 0;
  #server;
  #headers;

  /** `headers` are sent with every file, `scripts` with those that are not pages. */
  constructor({ headers = {}, scripts = {} } = {}) {
    this.#headers = { page: headers, script: { ...headers, ...scripts } };
  }

  async listen(files) {
    this.#server = createServer(({ url }, response) => {
      const { pathname } = new URL(url, "http://localhost");
      try {
        const body = files.read(pathname);
        this.bytes += body.length;
        const isPage = pathname.endsWith(".html");
        response.writeHead(200, {
          "content-type": TYPES[extname(pathname)] ?? "application/octet-stream",
          ...(!isPage && { "content-encoding": "br" }),
          ...this.#headers[isPage ? "page" : "script"],
        });
        response.end(body);
      } catch {
        response.writeHead(404).end();
      }
    });
    await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get url() {
    return `http://localhost:${this.#server.address().port}`;
  }

  close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
