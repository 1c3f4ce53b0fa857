/** A tab that takes items from a stock in every form of write, and counts the answers. */

import { ConflictError, connect } from "varve/client";
import type shop from "./tab-worker.js";

/** The number of concurrent requests of each form. */
const LANES = 3;

/** A pause between the requests of a lane, so that the processor is not saturated. */
const PAUSE_MS = 3;

/** More than the default, because procedures never conflict and so win most conflicts. */
const RETRIES = 30;

/** The number of procedure calls in one task. */
const BURST = 8;

const FORMS = ["procedure", "declared", "transaction", "update"] as const;

/** What a tab has requested, and the results. */
export interface Account {
  readonly name: string;
  /** The number of requests and of answers by form. */
  asked: Record<string, number>;
  answered: Record<string, number>;
  /** Requests that failed with a ConflictError after all retries. */
  refused: number;
  /** Requests that failed otherwise, with their errors. */
  failures: string[];
  /** The longest time of a single request. */
  slowestMs: number;
}

let running: Worker | undefined;
const worker = () => {
  running = new Worker("/tab-worker.js", { type: "module" });
  return running;
};
const client = connect<typeof shop>("tabs", { worker });

let account: Account | undefined;
let isOver = false;
const lanes: Promise<void>[] = [];

async function one(form: string, mark: string): Promise<unknown> {
  if (form === "procedure") return client.call.drop(mark);
  if (form === "declared") {
    const name = account?.name ?? "";
    return client
      .collection("tallies")
      .update(name, { add: { count: 1 }, valueIfMissing: { count: 0 } });
  }
  if (form === "update") {
    const more = (bytes: Uint8Array) => String(Number(new TextDecoder().decode(bytes)) + 1);
    return client.updateIf(`own/${account?.name}`, more, {
      valueIfMissing: "0",
      retries: RETRIES,
    });
  }
  return client.transaction(
    async (tx) => {
      if (await tx.has(mark)) throw new Error(`${mark} was there`);
      const stock = Number(await tx.getText("stock"));
      tx.set(mark, "1");
      tx.set("stock", String(stock - 1));
    },
    { retries: RETRIES },
  );
}

async function lane(form: string, reported: Account): Promise<void> {
  while (!isOver) {
    const take = () => taken(form, reported);
    await Promise.all(Array.from({ length: form === "procedure" ? BURST : 1 }, take));
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** Makes one more request of that form, and counts its result. */
async function taken(form: string, reported: Account): Promise<void> {
  const number = reported.asked[form] as number;
  reported.asked[form] = number + 1;
  const start = Date.now();
  try {
    await one(form, `done/${reported.name}/${form}/${number}`);
    reported.answered[form] = (reported.answered[form] as number) + 1;
  } catch (error) {
    if (error instanceof ConflictError) reported.refused += 1;
    else reported.failures.push(`${form} ${number}: ${String(error)}`);
  }
  // The other forms retry after conflicts, so they may take longer.
  if (form !== "procedure" && form !== "declared") return;
  reported.slowestMs = Math.max(reported.slowestMs, Date.now() - start);
}

Object.assign(globalThis, {
  client,
  killWorker: () => running?.terminate(),
  /** Starts the requests. */
  begin(name: string): void {
    const counts = () => Object.fromEntries(FORMS.map((form) => [form, 0]));
    account = {
      name,
      asked: counts(),
      answered: counts(),
      refused: 0,
      failures: [],
      slowestMs: 0,
    };
    for (const form of FORMS) {
      for (let i = 0; i < LANES; i += 1) lanes.push(lane(form, account));
    }
  },
  account: () => ({ ...account, status: client.status }),
  /** Makes no further requests, and returns the results when all are answered. */
  async end(): Promise<Account | undefined> {
    isOver = true;
    await Promise.all(lanes);
    return account;
  },
  /** The contents of the database. */
  async found(): Promise<{
    stock: number;
    twice: number;
    marks: string[];
    own: [string, number][];
    declared: [string, number][];
  }> {
    const marks = await client.keys({ prefix: "done/" }).all();
    const own: [string, number][] = [];
    for await (const [key, value] of client.entries({ prefix: "own/" })) {
      own.push([key.slice(4), Number(new TextDecoder().decode(value))]);
    }
    const stock = Number(await client.getText("stock"));
    const twice = Number((await client.getText("twice")) ?? "0");
    const tallies = await client.collection("tallies").entries().all();
    const declared = tallies.map(([name, { count }]): [string, number] => [name, count]);
    return { stock, twice, marks, own, declared };
  },
});
