// The service worker: it answers for the stored films, and keeps the page's own files, so that both work without a network.

import { Blobs } from "varve/blobs";
import { connect } from "varve/client";
import db from "./films";

type Waiting = Event & { waitUntil(task: Promise<unknown>): void };
type Fetching = Event & { request: Request; respondWith(answer: Promise<Response>): void };
const scope = globalThis as unknown as {
  clients: { claim(): Promise<void> };
  skipWaiting(): Promise<void>;
};

const films = new Blobs(connect<typeof db>("films", { worker: db.here }));

addEventListener("install", (event) => (event as Waiting).waitUntil(scope.skipWaiting()));
addEventListener("activate", (event) => (event as Waiting).waitUntil(scope.clients.claim()));

addEventListener("fetch", (event) => {
  const { request } = event as Fetching;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin) return;
  const film = pathname.startsWith("/films/");
  (event as Fetching).respondWith(film ? answerFor(request, pathname) : pageFile(request));
});

async function answerFor(request: Request, pathname: string): Promise<Response> {
  const film = await films.get(decodeURIComponent(pathname.slice("/films/".length)));
  return film?.response(request) ?? new Response("There is no such film.", { status: 404 });
}

async function pageFile(request: Request): Promise<Response> {
  const kept = await caches.open("page");
  try {
    const answer = await fetch(request);
    if (answer.ok) await kept.put(request, answer.clone());
    return answer;
  } catch (error) {
    const last = await kept.match(request);
    if (last === undefined) throw error;
    return last;
  }
}
