/** A tab whose life is tested: it has a client, and does what it is told from outside. */

import { connect, OwnerUnavailableError } from "varve/client";
import type shop from "./worker.js";

/** What became of what was asked for without a pause. */
export interface Stream {
  answered: number;
  /** Those that were not answered in time: certainly not done, or perhaps. */
  notDone: number;
  unknown: number;
  /** Whatever else was thrown. */
  others: string[];
  slowestMs: number;
  /** The longest time in which no timer of this page ran: nothing can be told in it. */
  stillMs: number;
}

/** Between two requests, which do not wait for each other. */
const EVERY_MS = 3;

const asked = new URL(location.href).searchParams;
const worker = () => new Worker("/worker.js", { type: "module" });
/** On a busy machine it takes its time until there is an owner at all. */
const client = connect<typeof shop>("shop", { worker, timeout: 60_000 });
/** Of the same connection, and gives up sooner. */
const hasty = connect<typeof shop>("shop", {
  worker,
  timeout: Number(asked.get("timeout") ?? 60_000),
});

/** A call with a timeout of its own, which procedures have none of. */
async function hanging(timeout: number): Promise<unknown> {
  const brief = connect<typeof shop>("shop", { worker, timeout });
  try {
    return await brief.call.hang("hung");
  } finally {
    await brief.close();
  }
}

// Goes away as soon as its worker opens the file.
if (asked.has("flees")) {
  client.addEventListener("status", () => {
    if (client.status.state === "opening") location.href = "about:blank";
  });
}

if (asked.has("asks")) addEventListener("pagehide", () => void client.call.add("last"));

const told: Stream = { answered: 0, notDone: 0, unknown: 0, others: [], slowestMs: 0, stillMs: 0 };

async function ask(): Promise<void> {
  const start = performance.now();
  try {
    await hasty.call.add("stream");
    told.answered += 1;
  } catch (error) {
    if (!(error instanceof OwnerUnavailableError)) told.others.push(String(error));
    else if (error.applied === false) told.notDone += 1;
    else told.unknown += 1;
  }
  told.slowestMs = Math.max(told.slowestMs, performance.now() - start);
}

let isOver = false;

async function stream(): Promise<Stream> {
  const all: Promise<void>[] = [];
  let last = performance.now();
  const watch = setInterval(() => {
    const now = performance.now();
    told.stillMs = Math.max(told.stillMs, now - last);
    last = now;
  }, EVERY_MS);
  while (!isOver) {
    all.push(ask());
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  await Promise.all(all);
  clearInterval(watch);
  return told;
}

let streaming: Promise<Stream> | undefined;
const shows: boolean[] = [];
addEventListener("pageshow", ({ persisted }) => shows.push(persisted));

Object.assign(globalThis, {
  tab: {
    add: (key: string) => client.call.add(key),
    get: async (key: string) => Number((await client.getText(key)) ?? "0"),
    status: () => client.status,
    /** What is thrown, in short. */
    failure: (key: string) =>
      hasty.call.add(key).then(
        (answer) => ({ code: "none", applied: true, message: `answered: ${answer}` }),
        ({ code, applied, message }) => ({ code, applied, message }),
      ),
    /** Has the owner run something that never ends, and gives it up. */
    hang: (timeout: number) =>
      hanging(timeout).then(
        () => "answered",
        ({ code, applied }) => `${code} ${applied}`,
      ),
    text: (key: string) => client.getText(key),
    /** How many of the stream were answered so far. */
    answered: () => told.answered,
    begin() {
      streaming = stream();
    },
    end() {
      isOver = true;
      return streaming;
    },
    /** Each time that the page was shown: whether it came back as it had been. */
    shows: () => shows,
    /** Another module of the same program, as a development server loads it after a change. */
    async reloaded() {
      await import(`/hot.js?${crypto.randomUUID()}`);
    },
    close: () => Promise.all([client.close(), hasty.close()]),
  },
});
