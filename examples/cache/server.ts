// A cache in front of something slow, in Bun. What it has stored is there after a restart, and is gone when its time is over,
// also from the file. Try: bun server.ts, and curl -i http://localhost:8080/any/path a few times.

import { open } from "varve";
import { json } from "varve/struct";

declare const Bun: {
  serve(options: { port: number; fetch(request: Request): Promise<Response> }): {
    url: URL;
    stop(): void;
  };
};

interface Page {
  body: string;
  made: string;
}

const TTL_MS = Number(process.env.TTL_MS ?? 60_000);

const db = await open("cache", { memory: 16 << 20 }); // ./cache.varve
const pages = db.collection("pages", json<Page>(), { expireIn: TTL_MS });

/** What is slow. */
async function made(path: string): Promise<Page> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  return { body: `The page ${path}`, made: new Date().toISOString() };
}

const server = Bun.serve({
  port: Number(process.env.PORT ?? 8080),
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const kept = pages.get(pathname);
    const page = kept ?? (await made(pathname));
    if (kept === undefined) pages.set(pathname, page);
    return new Response(`${page.body}, made at ${page.made}\n`, {
      headers: { "x-cache": kept === undefined ? "miss" : "hit" },
    });
  },
});
console.log(server.url.href);

process.on("SIGINT", async () => {
  server.stop();
  await db.close();
  process.exit();
});
