/** A tab whose lifecycle is tested: its client does what the test requests. */

import { connect, follow, OwnerUnavailableError } from "varve/client";
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

/** The keys of the transactions that were followed, in their order. */
const followed: string[] = [];
let isWriting = true;

/** Writes a key after the other until `isWriting` ends. Returns how many. */
async function writeKeys(): Promise<number> {
  let count = 0;
  for (; isWriting; count += 1) await client.set(`key/${count}`, "1");
  return count;
}

async function followKeys(): Promise<void> {
  for await (const { records } of follow(client, { since: 0 })) {
    for (const { key } of records) if (String(key).startsWith("key/")) followed.push(String(key));
  }
}

let writing: Promise<number> | undefined;
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
    /** Follows all commits, and makes some. */
    beginToFollow() {
      followKeys();
      writing = writeKeys();
    },
    /** How many keys were followed so far. */
    followed: () => followed.length,
    /** The followed keys, and how many were written, once as many were followed. */
    async endToFollow() {
      isWriting = false;
      const count = await writing;
      while (followed.length < Number(count))
        await new Promise((resolve) => setTimeout(resolve, 10));
      // What comes twice comes soon.
      await new Promise((resolve) => setTimeout(resolve, 500));
      return [followed, count];
    },
    close: () => Promise.all([client.close(), hasty.close()]),
  },
});
