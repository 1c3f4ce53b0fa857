// A static server on localhost. It serves files from the given folders only.

import { createServer } from "node:http";
import { Problem } from "./lib.mjs";

/**
 * Serves `folders` (the first that has a file wins) and returns the URL, without a final "/". `pages` maps
 * paths to HTML; `posts` maps paths to functions that receive the posted text; `headers` are added to every
 * response.
 */
export async function serve(folders, { port = 0, pages = {}, posts = {}, headers = {} } = {}) {
  // Imported here, because scripts that serve also install missing packages.
  const { default: sirv } = await import("sirv");
  const setHeaders = (response) => response.setHeader("x-content-type-options", "nosniff");
  const statics = folders.map((folder) => sirv(folder, { dev: true, etag: false, setHeaders }));

  const server = createServer((request, response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    if (request.method === "POST" && Object.hasOwn(posts, pathname)) {
      return receiveText(request, response, posts[pathname]);
    }
    if (request.method !== "GET" && request.method !== "HEAD") return end(response, 405);
    if (Object.hasOwn(pages, pathname)) {
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" });
      return response.end(pages[pathname]);
    }
    const attempt = (index) =>
      index < statics.length
        ? statics[index](request, response, () => attempt(index + 1))
        : end(response, 404);
    attempt(0);
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

function receiveText(request, response, listener) {
  let text = "";
  request.setEncoding("utf8").on("data", (chunk) => {
    text += chunk;
  });
  request.on("end", () => {
    listener(text);
    end(response, 200);
  });
}

function end(response, status) {
  response.writeHead(status, { "content-type": "text/plain" });
  response.end(`${status}\n`);
}
