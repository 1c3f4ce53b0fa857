/** A tab whose lifecycle is tested: its client does what the test requests. */

import { connect, OwnerUnavailableError } from "varve/client";
import type shop from "./worker.js";

/** The results of a continuous stream of requests. */
export interface Stream {
  answered: number;
  /** The requests that timed out: certainly not done, or possibly done. */
  notDone: number;
  unknown: number;
  /** Any other errors. */
  others: string[];
  slowestMs: number;
  /** The longest time in which no timer of this page ran, and so nothing could be observed. */
  stillMs: number;
}

/** The interval of requests, which do not wait for each other. */
const EVERY_MS = 3;

const asked = new URL(location.href).searchParams;
const worker = () => new Worker("/worker.js", { type: "module" });
/** On a busy machine it takes some time until there is an owner at all. */
const client = connect<typeof shop>("shop", { worker, timeout: 60_000 });
/** A client of the same connection with a shorter timeout. */
const hasty = connect<typeof shop>("shop", {
  worker,
  timeout: Number(asked.get("timeout") ?? 60_000),
});

/** A call with a timeout, which calls of procedures do not take. */
async function hanging(timeout: number): Promise<unknown> {
  const brief = connect<typeof shop>("shop", { worker, timeout });
  try {
    return await brief.call.hang("hung");
  } finally {
    await brief.close();
  }
}

// Navigates away as soon as its worker opens the file.
if (asked.has("flees")) {
  client.addEventListener("status", () => {
    if (client.status.state === "opening") location.href = "about:blank";
  });
}

if (asked.has("asks")) addEventListener("pagehide", () => void client.call.add("last"));

const reported: Stream = {
  answered: 0,
  notDone: 0,
  unknown: 0,
  others: [],
  slowestMs: 0,
  stillMs: 0,
};

async function ask(): Promise<void> {
  const start = performance.now();
  try {
    await hasty.call.add("stream");
    reported.answered += 1;
  } catch (error) {
    if (!(error instanceof OwnerUnavailableError)) reported.others.push(String(error));
    else if (error.applied === false) reported.notDone += 1;
    else reported.unknown += 1;
  }
  reported.slowestMs = Math.max(reported.slowestMs, performance.now() - start);
}

let isOver = false;

async function stream(): Promise<Stream> {
  const all: Promise<void>[] = [];
  let last = performance.now();
  const watch = setInterval(() => {
    const now = performance.now();
    reported.stillMs = Math.max(reported.stillMs, now - last);
    last = now;
  }, EVERY_MS);
  while (!isOver) {
    all.push(ask());
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  await Promise.all(all);
  clearInterval(watch);
  return reported;
}

let streaming: Promise<Stream> | undefined;
const shows: boolean[] = [];
addEventListener("pageshow", ({ persisted }) => shows.push(persisted));

Object.assign(globalThis, {
  tab: {
    add: (key: string) => client.call.add(key),
    get: async (key: string) => Number((await client.getText(key)) ?? "0"),
    status: () => client.status,
    /** The error of a call, in short. */
    failure: (key: string) =>
      hasty.call.add(key).then(
        (answer) => ({ code: "none", applied: true, message: `answered: ${answer}` }),
        ({ code, applied, message }) => ({ code, applied, message }),
      ),
    /** Has the owner run an endless procedure, and cancels the call. */
    hang: (timeout: number) =>
      hanging(timeout).then(
        () => "answered",
        ({ code, applied }) => `${code} ${applied}`,
      ),
    text: (key: string) => client.getText(key),
    /** The number of answers to the stream so far. */
    answered: () => reported.answered,
    begin() {
      streaming = stream();
    },
    end() {
      isOver = true;
      return streaming;
    },
    /** Each time that the page was shown: whether it came from the back/forward cache. */
    shows: () => shows,
    /** Another module of the same program, as a development server loads it after a change. */
    async reloaded() {
      await import(`/hot.js?${crypto.randomUUID()}`);
    },
    close: () => Promise.all([client.close(), hasty.close()]),
  },
});
